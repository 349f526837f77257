"""One turn of an edit: asked, listened to, and ended by the model itself, or it is no turn. Knows no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Protocol

from specchat.chat.events import Event, Failed, Finished, PrefillProgress, Routed, TextDelta, Totals
from specchat.chat.request import Request
from specchat.edit.answer_check import AnswerProblem, UnusableAnswerError, is_looping
from specchat.edit.edit_plan import GROWTH_FACTOR, PROMPT_OVERHEAD_TOKENS
from specchat.errors import CancelledError, ContextError, NoUsableEditError, error_with_exit_code

MIN_BYTES_PER_TOKEN = 2  # few tokenizers need more tokens for a text than one for two bytes


class Conversation(Protocol):
    """Whoever answers."""

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """The events of one answer."""
        ...


def ignore_event(_event: Event) -> None:
    """The ear of who does not listen."""


def keep_conversation() -> None:
    """How a conversation begins anew that cannot."""


@dataclass
class EditRun:
    """Whom to ask, how to stop it, who listens, how to begin anew; and what was heard of every turn."""

    conversation: Conversation
    cancelled: Flag = field(default_factory=Flag)
    on_event: Callable[[Event], None] = ignore_event
    restart_conversation: Callable[[], None] = keep_conversation
    turn_count: int = 0
    route: Routed | None = None
    finished_turns: list[Finished] = field(default_factory=list)
    candidate: str = ""  # the last whole text, taken or not

    def start_new_context(self) -> None:
        """What comes has nothing to do with what was said before, and needs its room."""
        if self.turn_count:
            self.restart_conversation()
            self.turn_count = 0


def sum_totals(finished_turns: Sequence[Finished]) -> Totals:
    """All turns together; the price of a plain pass is that of the last one."""
    done = [each.totals for each in finished_turns] or [Totals()]
    sources = sorted({source for each in done for source in each.accepted_by_drafter})
    return Totals(
        prompt_tokens=sum(each.prompt_tokens for each in done), completion_tokens=sum(each.completion_tokens for each in done),
        steps=sum(each.steps for each in done), draft_tokens=sum(each.draft_tokens for each in done),
        accepted_by_drafter={source: sum(each.accepted_by_drafter.get(source, 0) for each in done) for source in sources},
        draft_seconds=sum(each.draft_seconds for each in done),
        verify_seconds=sum(each.verify_seconds for each in done), plain_step_seconds=done[-1].plain_step_seconds,
    )  # fmt: skip


def run_turn(name: str, request: Request, window_tokens: int, edit_run: EditRun) -> str:
    """One answer that came to its own end."""
    said, finished = list[str](), None
    edit_run.turn_count += 1
    for event in edit_run.conversation.ask(request, edit_run.cancelled):
        edit_run.on_event(event)
        match event:
            case TextDelta(text=text):
                said.append(text)
            case PrefillProgress(prompt_tokens=total):
                _check_window(name, request, total, window_tokens)
            case Routed():
                edit_run.route = event
            case Finished():
                finished = event
            case Failed(message=message, exit_code=code):
                raise ContextError(message) if code == ContextError.exit_code else error_with_exit_code(message, code)
            case _:
                pass
    if finished is None:
        raise NoUsableEditError(f"{name}: the answer did not end")
    edit_run.finished_turns.append(finished)
    _check_finished(name, request, finished, "".join(said))
    return "".join(said)


def _check_window(name: str, request: Request, prompt_tokens: int, window_tokens: int) -> None:
    """Now the tokens of the prompt are known, and so are those of the answer, nearly: no need to begin in vain."""
    own = len(request.text.encode()) // MIN_BYTES_PER_TOKEN + PROMPT_OVERHEAD_TOKENS
    answer = round(GROWTH_FACTOR * (prompt_tokens - own)) if request.files else 0
    if prompt_tokens + max(0, answer) > window_tokens:
        raise ContextError(
            f"{name}: takes {prompt_tokens} tokens to read and about {answer} to write, and the window holds "
            f"{window_tokens}; name a function or class in it, choose lines with -l FIRST-LAST, or raise limits.context"
        )


def _check_finished(name: str, request: Request, finished: Finished, answer: str) -> None:
    """Only an answer that came to its own end can be a whole file."""
    tokens = finished.totals.completion_tokens
    if finished.finish_reason == "cancelled":
        raise CancelledError("stopped; nothing is written")
    if finished.finish_reason != "length":
        return
    if is_looping(answer):
        raise UnusableAnswerError(AnswerProblem.LOOP, f"{name}: the model says the same again and again")
    if tokens < (request.max_tokens or 0):
        raise ContextError(
            f"{name}: the answer did not fit; the file takes {finished.totals.prompt_tokens} tokens and as many "
            f"again to write; raise limits.context or limits.answer, or edit a part of it with -l FIRST-LAST"
        )
    raise UnusableAnswerError(AnswerProblem.CUT_OFF, f"{name}: the model did not come to an end within {tokens} tokens")
