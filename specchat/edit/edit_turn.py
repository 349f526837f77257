"""One turn of an edit: asked, listened to, and ended by the model itself, or it is no turn. Knows no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Protocol

from specchat.chat.events import Event, Failed, Finished, Prefill, Routed, Text, Totals
from specchat.chat.request import Request
from specchat.edit.answer_check import RejectedError, Verdict, is_looping
from specchat.edit.edit_plan import AROUND_TOKENS, GROWTH
from specchat.errors import CancelledError, ContextError, NoUsableEditError, failure

BYTES_PER_TOKEN = 2  # few tokenizers need more tokens for a text than one for two bytes


class Conversation(Protocol):
    """Whoever answers."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """The events of one answer."""
        ...


def hear_nothing(_event: Event) -> None:
    """The ear of who does not listen."""


def go_on() -> None:
    """How a conversation begins anew that cannot."""


@dataclass
class Talk:
    """Whom to ask, how to stop it, who listens, how to begin anew; and what was heard of every turn."""

    conversation: Conversation
    cancelled: Flag = field(default_factory=Flag)
    hear: Callable[[Event], None] = hear_nothing
    anew: Callable[[], None] = go_on
    asked: int = 0
    routed: Routed | None = None
    finished: list[Finished] = field(default_factory=list)
    candidate: str = ""  # the last whole text, taken or not

    def begin(self) -> None:
        """What comes has nothing to do with what was said before, and needs its room."""
        if self.asked:
            self.anew()
            self.asked = 0


def sum_of(finished: Sequence[Finished]) -> Totals:
    """All turns together; the price of a plain pass is that of the last one."""
    done = [each.totals for each in finished] or [Totals()]
    sources = sorted({source for each in done for source in each.accepted})
    return Totals(
        prompt_tokens=sum(each.prompt_tokens for each in done), tokens=sum(each.tokens for each in done),
        steps=sum(each.steps for each in done), drafted=sum(each.drafted for each in done),
        accepted={source: sum(each.accepted.get(source, 0) for each in done) for source in sources},
        draft_seconds=sum(each.draft_seconds for each in done),
        verify_seconds=sum(each.verify_seconds for each in done), plain_seconds=done[-1].plain_seconds,
    )  # fmt: skip


def ask(name: str, request: Request, window: int, talk: Talk) -> str:
    """One answer that came to its own end."""
    said, finished = list[str](), None
    talk.asked += 1
    for event in talk.conversation.ask(request, talk.cancelled):
        talk.hear(event)
        match event:
            case Text(text=text):
                said.append(text)
            case Prefill(total=total):
                _check_room(name, request, total, window)
            case Routed():
                talk.routed = event
            case Finished():
                finished = event
            case Failed(message=message, exit_code=code):
                raise ContextError(message) if code == ContextError.exit_code else failure(message, code)
            case _:
                pass
    if finished is None:
        raise NoUsableEditError(f"{name}: the answer did not end")
    talk.finished.append(finished)
    _check_end(name, request, finished, "".join(said))
    return "".join(said)


def _check_room(name: str, request: Request, prompt_tokens: int, window: int) -> None:
    """Now the tokens of the prompt are known, and so are those of the answer, nearly: no need to begin in vain."""
    own = len(request.text.encode()) // BYTES_PER_TOKEN + AROUND_TOKENS
    answer = round(GROWTH * (prompt_tokens - own)) if request.files else 0
    if prompt_tokens + max(0, answer) > window:
        raise ContextError(
            f"{name}: takes {prompt_tokens} tokens to read and about {answer} to write, and the window holds "
            f"{window}; name a function or class in it, choose lines with -l FIRST-LAST, or raise limits.context"
        )


def _check_end(name: str, request: Request, finished: Finished, answer: str) -> None:
    """Only an answer that came to its own end can be a whole file."""
    tokens = finished.totals.tokens
    if finished.reason == "cancelled":
        raise CancelledError("stopped; nothing is written")
    if finished.reason != "length":
        return
    if is_looping(answer):
        raise RejectedError(Verdict.LOOP, f"{name}: the model says the same again and again")
    if tokens < (request.max_tokens or 0):
        raise ContextError(
            f"{name}: the answer did not fit; the file takes {finished.totals.prompt_tokens} tokens and as many "
            f"again to write; raise limits.context or limits.answer, or edit a part of it with -l FIRST-LAST"
        )
    raise RejectedError(Verdict.CUT_OFF, f"{name}: the model did not come to an end within {tokens} tokens")
