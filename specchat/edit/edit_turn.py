"""One request of an edit: streams the answer and requires that the model ended it by itself. Knows no file."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from typing import Protocol, TypeVar

from specchat.chat.events import REPETITION, Event, Failed, Finished, PrefillProgress, Routed, TextDelta
from specchat.chat.request import BLOCKS_TASK, Request
from specchat.edit.answer_check import EXCERPT_CHARS, AnswerProblem, UnusableAnswerError
from specchat.edit.edit_plan import GROWTH_FACTOR, PROMPT_OVERHEAD_TOKENS
from specchat.edit.measured_formats import AT_ONCE, FAILED, REPAIRED
from specchat.errors import CancelledError, ContextError, NoUsableEditError, error_with_exit_code

Result = TypeVar("Result")

MIN_BYTES_PER_TOKEN = 2  # few tokenizers need more than one token for two bytes


class Conversation(Protocol):
    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]: ...


Watch = Callable[[str], AnswerProblem | None]  # of each piece of an answer: why it cannot become the new text


def ignore_event(_event: Event) -> None:
    """For callers that need no events."""


def result_of(events: Generator[Event, None, Result], on_event: Callable[[Event], None] = ignore_event) -> Result:
    """What a generator of events returns, after all of them."""
    while True:
        try:
            on_event(next(events))
        except StopIteration as end:
            return end.value


@dataclass
class EditRun:
    conversation: Conversation
    cancelled: Flag = field(default_factory=Flag)
    restart_conversation: Callable[[], None] = lambda: None
    temperature: float | None = None  # None: greedy
    turn_count: int = 0
    route: Routed | None = None
    finished_turns: list[Finished] = field(default_factory=list)
    talk: str = ""  # what the model said beside its last text
    candidate: str = ""  # the last complete text, accepted or not
    answer_parts: list[str] = field(default_factory=list[str])  # the last answer, complete or not
    tries: list[str] = field(default_factory=list[str])  # the formats that were asked for; the last text may be taken
    is_repaired: bool = False  # the model was told of an error in it
    is_taken: bool = False

    @property
    def counts(self) -> Counter[str]:
        """What became of each format that was asked for."""
        last = FAILED if not self.is_taken else REPAIRED if self.is_repaired else AT_ONCE
        outcomes = [*[FAILED] * (len(self.tries) - 1), last]
        return Counter(f"{tried}, {outcome}" for tried, outcome in zip(self.tries, outcomes, strict=False))

    def start_new_context(self) -> None:
        """Drop earlier turns: they are unrelated and use up the context window."""
        if self.turn_count:
            self.restart_conversation()
            self.turn_count = 0


class _EndFlag(Flag):
    """Set when the user cancels, and when the answer is to be ended."""

    def __init__(self, cancelled: Flag) -> None:
        super().__init__()
        self._cancelled = cancelled

    def is_set(self) -> bool:
        return super().is_set() or self._cancelled.is_set()


def run_turn(
    name: str, request: Request, window_tokens: int, edit_run: EditRun, watch: Watch
) -> Generator[Event, object, str]:
    """The events of the answer to a request, and its text. It is ended as soon as `watch` finds a problem in it."""
    parts, finished, problem = list[str](), None, None
    edit_run.turn_count += 1
    request, ended = replace(request, temperature=edit_run.temperature), _EndFlag(edit_run.cancelled)
    for event in edit_run.conversation.ask(request, ended):
        yield event
        match event:
            case TextDelta(text=text):
                parts.append(text)
                problem = problem or watch(text)
                if problem:
                    ended.set()
            case PrefillProgress(prompt_tokens=total):
                _check_window(name, request, total, window_tokens)
            case Routed():
                edit_run.route, edit_run.answer_parts = event, parts
            case Finished():
                finished = event
            case Failed(message=message, exit_code=code):
                raise ContextError(message) if code == ContextError.exit_code else error_with_exit_code(message, code)
            case _:
                pass
    if finished is None:
        raise NoUsableEditError(f"{name}: the answer did not end")
    edit_run.finished_turns.append(finished)
    if problem and not edit_run.cancelled.is_set():
        beginning = " ".join("".join(parts).split())[:EXCERPT_CHARS]
        raise UnusableAnswerError(problem, f"{name}: ended the answer ({problem}): {beginning}")
    _check_finished(name, request, finished)
    return "".join(parts)


def _check_window(name: str, request: Request, prompt_tokens: int, window_tokens: int) -> None:
    """Raise as soon as the prompt's token count shows that prompt and answer cannot fit the window."""
    own = len(request.text.encode()) // MIN_BYTES_PER_TOKEN + PROMPT_OVERHEAD_TOKENS
    is_whole_text = request.files and request.task != BLOCKS_TASK
    answer = round(GROWTH_FACTOR * (prompt_tokens - own)) if is_whole_text else 0
    if prompt_tokens + max(0, answer) > window_tokens:
        raise ContextError(
            f"{name}: takes {prompt_tokens} tokens to read and about {answer} to write, and the window holds "
            f"{window_tokens}; name a function or class in it, choose lines with -l FIRST-LAST, or raise limits.context"
        )


def _check_finished(name: str, request: Request, finished: Finished) -> None:
    """Only an answer that the model ended by itself can be a whole file."""
    tokens = finished.totals.completion_tokens
    if finished.finish_reason == "cancelled":
        raise CancelledError("stopped; nothing is written")
    if finished.finish_reason == REPETITION:
        raise UnusableAnswerError(AnswerProblem.LOOP, f"{name}: {finished.explanation or 'the model repeats itself'}")
    if finished.finish_reason != "length":
        return
    if tokens < (request.max_tokens or 0):
        raise ContextError(
            f"{name}: the answer did not fit; the file takes {finished.totals.prompt_tokens} tokens and as many "
            f"again to write; raise limits.context or limits.answer, or edit a part of it with -l FIRST-LAST"
        )
    raise UnusableAnswerError(AnswerProblem.CUT_OFF, f"{name}: the model did not finish within {tokens} tokens")
