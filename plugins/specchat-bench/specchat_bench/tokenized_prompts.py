"""Prompts as the tokens that a model reads, for what measures or compares without a conversation.

They are built in, of a file, or of a stored conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Request
from specchat.errors import InputError
from specchat.history.history_reader import HistoryReader
from specchat.host.spawn import history_path
from specchat.loading.load_engine import Engine
from specchat.text.chat_format import AUTO_THINKING
from specchat_bench.builtin_prompts import BUILTIN_REQUESTS
from specchat_bench.prompt_files import read_prompts


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


def fitting_prompts(engine: Engine, requests: Iterator[Request], count: int, limit: int) -> list[list[int]]:
    """The same as bare tokens. InputError when none fits."""
    if prompts := tokenize_prompts(engine, requests, count, limit):
        return [prompt.token_ids for prompt in prompts]
    raise InputError("none of the prompts fits the context window of this model together with its answer")


def requests_of(prompts_path: Path | None) -> Iterator[Request]:
    """The prompts of a file or folder, or the built-in ones, one of each kind in turn."""
    if prompts_path:
        return read_prompts(prompts_path)
    by_turns = zip(*(requests[:3] for requests in BUILTIN_REQUESTS.values()), strict=True)
    return chain.from_iterable(by_turns)


def stored_prompts(session_id: str, engine: Engine) -> Iterator[list[int]]:
    path = history_path()
    reader = HistoryReader(path) if path.is_file() else None
    thread = reader.thread(session_id) if reader else None
    if reader is None or thread is None:
        raise InputError(f"{session_id}: no such conversation, or several begin with it; see 'specchat sessions list'")
    with closing(reader):
        turns = [list(turn.answer.prompt_ids) for turn in reader.turns(thread.tip) if turn.answer.prompt_ids]
    target = engine.models.target
    fitting = [ids for ids in turns if max(ids) < target.vocab_size and len(ids) < target.context_window]
    if not fitting:
        raise InputError(f"{session_id}: none of its {len(turns)} turns can be replayed by this model; name its own")
    yield from fitting
