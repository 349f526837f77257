"""The verb `ask`: a question with its files becomes events, the same ones for every front end.

    read the files -> Asked -> the events of the answers, and of the calls of tools between them -> Answered

A front end renders the events and decides nothing: what is attached, which notices follow, what the answers cost in
sum and whether the work failed are decided here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event as Flag

from specchat.app.agent.agent_loop import AgentEvent, LoopEnded, RoundStarted
from specchat.app.chat_state import ChatState
from specchat.app.question import Question, ReadQuestion, read_question
from specchat.chat.events import TRUNCATED_REASONS, Failed, Finished, Notice, Routed, Totals
from specchat.chat.events import Event as AnswerEvent
from specchat.chat.request import Request
from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import summary_line
from specchat.errors import ContextError, error_with_exit_code


@dataclass(frozen=True)
class Asked:
    """The question as the model reads it, with its files."""

    request: Request


@dataclass(frozen=True)
class Answered:
    """The end of the work: how it ended, the text of the last answer, and what all answers cost.

    `ended_early` says why the work with tools ended before the model was done; `notices` are lines for the user.
    """

    end: Finished | Failed
    text: str
    totals: Totals
    route: Routed | None = None
    ended_early: str = ""
    notices: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The line about the cost, "" without an answer."""
        reason = self.end.finish_reason if isinstance(self.end, Finished) else ""
        return summary_line(self.totals, self.route, reason) if self.route else ""

    def raise_failure(self) -> None:
        """Raise the error of an answer that failed."""
        if isinstance(self.end, Failed):
            raise error_with_exit_code(self.end.message, self.end.exit_code)


AskEvent = AnswerEvent | AgentEvent | Asked | Answered


def ask(chat: ChatState, question: Question | Request, cancelled: Flag) -> Iterator[AskEvent]:
    """Ask in the conversation, with tools where the mode of its agent has some. A `Request` is sent as it is.

    Raises the error of a question that cannot be sent; what fails later is a `Failed` and the end of `Answered`.
    """
    finished, ended_early = list[Finished](), ""
    chat.sources.cancelled = cancelled
    read = _read(chat, question)
    yield Asked(read.request)
    yield from map(Notice, read.notice.splitlines())
    for event in chat.agent.ask(read.request, cancelled):
        if isinstance(event, RoundStarted):
            yield from map(Notice, chat.notices)
        elif isinstance(event, LoopEnded):
            ended_early = event.reason
        elif not isinstance(event, AgentEvent):
            chat.on_event(event)
            finished += [event] if isinstance(event, Finished) else []
        yield event
    sources = [f"sources: {', '.join(read.sources)}"] if read.sources else []
    notices = (*sources, *chat.notices, *chat.sources.take_notices())
    totals = sum_totals(finished)
    route = chat.routed if finished else None
    yield Answered(_end(chat, read.request), chat.answer, totals, route, ended_early, notices)


def _read(chat: ChatState, question: Question | Request) -> ReadQuestion:
    """The request; files that were named for the next question are read once, even if it fails."""
    if isinstance(question, Request):
        read = ReadQuestion(question)
    else:
        names, chat.pending_names = (*chat.pending_names, *question.names), ()
        access = replace(chat.access, loader=chat.sources.loader)
        read = read_question(replace(question, names=names), chat.conversation.window_tokens, access)
    return replace(read, request=replace(read.request, wants_probabilities=chat.wants_probabilities))


def _end(chat: ChatState, request: Request) -> Finished | Failed:
    """How the last answer ended; one in a format that was cut off at its limit has failed."""
    end = chat.last_outcome or Failed("no answer")
    if request.answer_format and isinstance(end, Finished) and end.finish_reason in TRUNCATED_REASONS:
        return Failed(request.answer_format.truncated_message(end.finish_reason), ContextError.exit_code)
    return end
