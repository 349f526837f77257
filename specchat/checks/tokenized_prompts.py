"""Requests as the tokens that a model reads, for those that measure or compare without a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Request
from specchat.loading.load_engine import Engine
from specchat.text.chat_format import AUTO_THINKING


@dataclass(frozen=True)
class TokenizedPrompt:
    request: Request
    token_ids: list[int]


def tokenize_prompts(
    engine: Engine, requests: Iterator[Request], count: int, max_tokens: int
) -> tuple[TokenizedPrompt, ...]:
    """The first `count` prompts that fit the context window together with their answer, as a session reads them."""
    models, chosen = engine.models, list[TokenizedPrompt]()
    profile = models.profile
    for request in requests:
        system, thinking = profile.system_prompt(request.task), request.thinking or AUTO_THINKING
        ids = build_next_prompt(models.tokenizer, system, (), request, thinking=thinking).token_ids
        if len(ids) + max_tokens <= models.target.context_window:
            chosen.append(TokenizedPrompt(request, ids))
        if len(chosen) == count:
            break
    return tuple(chosen)
