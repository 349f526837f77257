"""One edit from instruction to new text: what is asked of the model, and what its answer must be.

The whole text is written anew; it is copied from the attachment at lookup speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event as Flag
from typing import Protocol

from specchat.chat.events import Event, Failed, Finished, Routed, Text
from specchat.chat.request import Attachment, Request
from specchat.edit.patch import new_text
from specchat.edit.source import Source
from specchat.errors import CancelledError, ContextError, NoUsableEditError, failure

SPARE_TOKENS = 512
BYTES_PER_TOKEN = 2  # few tokenizers need more tokens for a text than one for two bytes


class Conversation(Protocol):
    """Whoever answers."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """The events of one answer."""
        ...


@dataclass(frozen=True)
class Edited:
    """A new text, and how it came to be."""

    text: str
    routed: Routed | None
    finished: Finished


def edit(
    source: Source, instruction: str, conversation: Conversation, cancelled: Flag, hear: Callable[[Event], None]
) -> Edited:
    """Ask for a new text and look at it closely; an EditError says why there is none."""
    request = Request(
        instruction,
        files=(Attachment(source.name, source.text),),
        max_tokens=len(source.text.encode()) // BYTES_PER_TOKEN + SPARE_TOKENS,
        task="edit",
    )
    said, routed, finished = [], None, None
    for event in conversation.ask(request, cancelled):
        hear(event)
        match event:
            case Text(text=text):
                said.append(text)
            case Routed():
                routed = event
            case Finished():
                finished = event
            case Failed(message=message, exit_code=code):
                raise failure(message, code)
            case _:
                pass
    if finished is None:
        raise NoUsableEditError(f"{source.name}: the answer did not end")
    _check_end(source, request, finished)
    return Edited(new_text(source, "".join(said)), routed, finished)


def _check_end(source: Source, request: Request, finished: Finished) -> None:
    """Only an answer that came to its own end can be a whole file."""
    tokens = finished.totals.tokens
    if finished.reason == "cancelled":
        raise CancelledError("stopped; nothing is written")
    if finished.reason == "length" and tokens < (request.max_tokens or 0):
        raise ContextError(
            f"{source.name}: the answer did not fit; the file takes {finished.totals.prompt_tokens} tokens and as many "
            f"again to write; raise limits.context or limits.answer, or edit a part of it"
        )
    if finished.reason == "length":
        raise NoUsableEditError(f"{source.name}: the model did not come to an end within {tokens} tokens")
