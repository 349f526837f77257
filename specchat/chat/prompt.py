"""How a conversation becomes tokens.

The tokens of a conversation are kept and only ever added to, because a text can be spelled in many ways and the model
remembers the one that it wrote. As long as the template writes the past as it did before, the next prompt is the
tokens so far and those of the new end. A template that rewrites the past (trims answers, drops thinking) makes the
whole be encoded again, and what is equal at the beginning is still known to the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.chat.attachments import with_attachments
from specchat.chat.reference_corpus import ReferenceCorpus, with_passages
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.errors import ModelError
from specchat.models.tokenizer import Message, Tokenizer


@dataclass(frozen=True)
class NextPrompt:
    """All tokens up to the next answer, how many of them the last turn had already, and the text they stand for."""

    token_ids: list[int]
    cached_prefix_length: int
    rendered_prompt: str


def build_next_prompt(
    tokenizer: Tokenizer,
    system: str,
    turns: Sequence[Turn],
    request: Request,
    reference_corpus: ReferenceCorpus | None = None,
) -> NextPrompt:
    """The prompt of the next turn. A question without files is shown what a reference says about it."""
    rendered = _render(tokenizer, system, _messages(turns, request, reference_corpus))
    last = turns[-1] if turns else Turn("")
    ids = _append_to_last_turn(tokenizer, last, rendered) or tokenizer.encode(rendered, parse_special=True)
    return NextPrompt(ids, _common_prefix_length(last.token_ids, ids), rendered)


def _append_to_last_turn(tokenizer: Tokenizer, last: Turn, rendered: str) -> list[int] | None:
    """The tokens so far and those of the new end; None when the past was rewritten.

    The new end begins with the end token of the answer, so the one that the model wrote is not counted twice.
    """
    answer = tokenizer.escape_control_tokens(last.answer)
    spellings = (answer, f" {answer}") if tokenizer.strips_first_space else (answer,)
    past = next(
        (text for text in (last.rendered_prompt + said for said in spellings) if rendered.startswith(text)), None
    )
    if past is None or not last.prompt_ids:
        return None
    ids = last.token_ids[:-1] if last.answer_ids and last.answer_ids[-1] in tokenizer.stop_token_ids else last.token_ids
    return [*ids, *tokenizer.encode_continuation(rendered[len(past) :])]


def _messages(turns: Sequence[Turn], request: Request, reference: ReferenceCorpus | None) -> list[Message]:
    messages: list[Message] = []
    for turn in turns:
        messages.append({"role": "user", "content": _user_content(turn.user, turn.files, reference)})
        messages.append({"role": "assistant", "content": turn.answer})
    return [*messages, {"role": "user", "content": _user_content(request.text, request.files, reference)}]


def _user_content(question: str, files: Sequence[Attachment], reference: ReferenceCorpus | None) -> str:
    if reference is None or files:
        return with_attachments(question, files)
    return with_passages(question, reference.search(question))


def _render(tokenizer: Tokenizer, system: str, messages: list[Message]) -> str:
    """The conversation as text. Where a template has no place for the system prompt, it opens the first question."""
    if not system.strip():
        return tokenizer.render(messages, add_generation_prompt=True)
    try:
        rendered = tokenizer.render([{"role": "system", "content": system}, *messages], add_generation_prompt=True)
    except ModelError:
        rendered = ""
    if tokenizer.escape_control_tokens(system.strip()) in rendered:
        return rendered
    first = {"role": "user", "content": f"{system}\n\n{messages[0]['content']}"}
    return tokenizer.render([first, *messages[1:]], add_generation_prompt=True)


def _common_prefix_length(old: Sequence[int], new: Sequence[int]) -> int:
    """How many tokens are equal from the beginning on."""
    pairs = zip(old, new, strict=False)
    return next((place for place, (before, now) in enumerate(pairs) if before != now), min(len(old), len(new)))
