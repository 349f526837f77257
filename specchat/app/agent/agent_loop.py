"""Answer, calls, consent, results, and the next answer, until the model calls nothing or a limit ends it.

    question -> answer with calls -> each call: check, consent, run -> results -> answer ...

The loop is the only place that runs a tool. Every call of an answer gets a result, also when the user stops between two
calls: results that were not sent go along with the next question, so the conversation stays whole. What a model does
wrong (broken JSON, an unknown name, arguments that do not match) goes back to it a few times.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from typing import Any

from specchat.app.agent.agent_tool import AgentTool, ChangingTool, Effect, ReportingTool, ToolOutcome, WritableChange
from specchat.app.agent.call_consent import Consent, Refused
from specchat.app.agent.tool_schemas import parse_arguments, with_paths
from specchat.chat.events import REPETITION, TOOL_CALLS, TRUNCATED_REASONS, Event, Finished, Notice, ToolCallDelta
from specchat.chat.request import Request
from specchat.chat.shortened_text import bounded
from specchat.chat.streamed_calls import StreamedCalls
from specchat.chat.tools import CALL_OR_ANSWER, Tool, ToolCall, ToolResult
from specchat.errors import UsageError

MAX_WRONG_CALLS = 5  # of one question
MAX_SAME_CALLS = 3  # in a row; the last one does not run
NOT_RUN = "not run: the user stopped the work"
EVERY_CALL_FAILED = "every call of a tool failed, so this answer does not rest on what is in the files"
CHOSEN = {"read": "path", "edit": "path", "list": "folder"}  # arguments that name what is there
CUT_CALL = {REPETITION: "the model repeated itself", "length": "the answer was full (limits.answer)"}

Ask = Callable[[Request, Flag], Iterator[Event]]


@dataclass(frozen=True)
class CallStarted:
    """A call of the model begins: `summary` is one line, `path` the file that it is about, if any."""

    call: ToolCall
    summary: str
    effect: Effect | None = None  # None for a call that no tool can take
    path: str = ""


@dataclass(frozen=True)
class CallProgressed:
    """How far a call is, in the words of its tool."""

    call: ToolCall
    line: str


@dataclass(frozen=True)
class CallFinished:
    """A call has its outcome. `change` is what was written."""

    call: ToolCall
    outcome: ToolOutcome
    seconds: float = 0.0
    change: WritableChange | None = None


@dataclass(frozen=True)
class RoundStarted:
    """The results go to the model, which answers again."""

    request: Request


@dataclass(frozen=True)
class LoopEnded:
    """The loop ended before the model was done, and why."""

    reason: str


AgentEvent = CallStarted | CallProgressed | CallFinished | RoundStarted | LoopEnded  # also for isinstance


@dataclass(frozen=True)
class LoopLimits:
    rounds: int = 25
    result_characters: int = 20_000


@dataclass
class _Question:
    """What is counted over all rounds of one question."""

    wrong_calls: int = 0
    outcomes: set[bool] = field(default_factory=set[bool])  # whether calls did their work
    last_call: tuple[str, str] = ("", "")
    same_calls: int = 0
    end_reason: str = ""

    def note(self, call: ToolCall) -> None:
        key = (call.name, call.arguments.strip())
        self.same_calls = self.same_calls + 1 if key == self.last_call else 1
        self.last_call = key
        if self.same_calls >= MAX_SAME_CALLS:
            self.end_reason = f"the model made the same call {MAX_SAME_CALLS} times in a row"

    def note_wrong(self) -> None:
        self.wrong_calls += 1
        if self.wrong_calls >= MAX_WRONG_CALLS:
            self.end_reason = f"{MAX_WRONG_CALLS} calls were not valid"


@dataclass
class AgentLoop:
    """The loop of one conversation. `unsent_results` belong to calls of its last answer; the next question has them."""

    tools: Sequence[AgentTool]
    consent: Consent
    limits: LoopLimits = LoopLimits()
    existing_files: Callable[[], Sequence[str]] = tuple  # what the model may name; none: it writes the path
    unsent_results: tuple[ToolResult, ...] = field(default=())

    @property
    def offered(self) -> dict[str, AgentTool]:
        """The tools by name, without those that could not run anyway; of two with one name the first."""
        named = dict[str, AgentTool]()
        for each in self.tools:
            if each.effect is Effect.READ or not self.consent.rules.is_read_only:
                named.setdefault(each.tool.name, each)
        return named

    def run(self, ask: Ask, request: Request, cancelled: Flag) -> Generator[Event | AgentEvent]:
        """The events of all answers and calls of one question."""
        tools, question = self.offered, _Question()
        results = (*self.unsent_results, *request.tool_results)
        request = replace(request, tool_choice=CALL_OR_ANSWER, tool_results=results, compacts=True)
        for number in range(1, self.limits.rounds + 1):
            request = replace(request, tools=self._described(tools))
            calls = yield from self._answer(ask, request, question, cancelled)
            if not calls:
                return
            if number == self.limits.rounds:
                question.end_reason = f"the limit of {number} answers is reached (agent.rounds)"
            yield from self._run_calls(tools, calls, question, cancelled)
            if question.end_reason:
                yield LoopEnded(question.end_reason)
                return
            request = replace(request, text="", files=(), tool_results=self.unsent_results, answer_prefix="")
            yield RoundStarted(request)

    def _described(self, tools: Mapping[str, AgentTool]) -> tuple[Tool, ...]:
        """As the model is told of them."""
        files = self.existing_files()
        return tuple(with_paths(each.tool, CHOSEN.get(name), files) for name, each in tools.items())

    def _answer(
        self, ask: Ask, request: Request, question: _Question, cancelled: Flag
    ) -> Generator[Event | AgentEvent, None, Sequence[ToolCall]]:
        """One answer; returns its calls, none if it ended in another way than by calling."""
        calls, reason = StreamedCalls(), ""
        for event in ask(request, cancelled):
            if isinstance(event, ToolCallDelta):
                calls.add(event)
            elif isinstance(event, Finished):
                self.unsent_results = ()
                reason = event.finish_reason
                if reason != TOOL_CALLS and question.outcomes == {False}:
                    yield Notice(EVERY_CALL_FAILED)
            yield event
        if calls and reason in TRUNCATED_REASONS:
            yield LoopEnded(f"{CUT_CALL[reason]} inside a call, which was not run")
        return list(calls) if reason == TOOL_CALLS else []

    def _run_calls(
        self, tools: dict[str, AgentTool], calls: Sequence[ToolCall], question: _Question, cancelled: Flag
    ) -> Generator[AgentEvent]:
        """Every call gets a result; those after the end of the work are not run."""
        results = {call.id: ToolResult(call.id, call.name, NOT_RUN, is_error=True) for call in calls}
        self.unsent_results = tuple(results.values())
        for call in calls:
            if question.end_reason:
                results[call.id] = replace(results[call.id], text=f"not run: {question.end_reason}")
            else:
                outcome = yield from self._run_call(tools, call, question, cancelled)
                text = bounded(outcome.text, self.limits.result_characters)
                question.outcomes.add(not outcome.is_error)
                results[call.id] = ToolResult(call.id, call.name, text, outcome.is_error)
                if cancelled.is_set():
                    question.end_reason = question.end_reason or "stopped by the user"
            self.unsent_results = tuple(results.values())

    def _run_call(
        self, tools: dict[str, AgentTool], call: ToolCall, question: _Question, cancelled: Flag
    ) -> Generator[AgentEvent, None, ToolOutcome]:
        started, change = time.monotonic(), None
        question.note(call)
        tool = tools.get(call.name)
        try:
            if tool is None:
                names = ", ".join(tools) or "none"
                raise UsageError(f"there is no tool {call.name!r}; the tools are {names}")
            arguments = parse_arguments(tool.tool, call.arguments)
        except UsageError as error:
            question.note_wrong()
            outcome = ToolOutcome(str(error), is_error=True)
            problem = "arguments that are not valid" if tool else "no such tool"
            yield CallStarted(call, f"{call.name}: {problem}")
            yield CallFinished(call, outcome)
            return outcome
        path = arguments.get("path", "")
        yield CallStarted(call, tool.describe(arguments), tool.effect, path if isinstance(path, str) else "")
        if question.same_calls >= MAX_SAME_CALLS:
            outcome = ToolOutcome(f"not run: {question.end_reason}", is_error=True)
        else:
            outcome, change = yield from self._consented(tool, call, arguments, question, cancelled)
        yield CallFinished(call, outcome, time.monotonic() - started, change)
        return outcome

    def _consented(
        self, tool: AgentTool, call: ToolCall, arguments: Mapping[str, Any], question: _Question, cancelled: Flag
    ) -> Generator[CallProgressed, None, tuple[ToolOutcome, WritableChange | None]]:
        """The outcome of a call, and the change that was written. Nothing runs before the consent."""
        if refused := self.consent.refusal(tool, arguments):
            return _refused(refused, question), None
        planned: WritableChange | ToolOutcome | None = None
        if isinstance(tool, ChangingTool):
            planned = tool.plan(arguments, cancelled)
            if isinstance(planned, ToolOutcome):
                return planned, None
            if cancelled.is_set():
                return ToolOutcome(NOT_RUN, is_error=True), None
        if refused := self.consent.decide(call, tool, arguments, planned):
            return _refused(refused, question), None
        if planned:
            outcome = planned.apply()
            return outcome, None if outcome.is_error else planned
        if not isinstance(tool, ReportingTool):
            return tool.run(arguments, cancelled), None
        steps = tool.run_reporting(arguments, cancelled)
        while isinstance(step := next(steps), str):
            yield CallProgressed(call, step)
        return step, None


def _refused(refused: Refused, question: _Question) -> ToolOutcome:
    if refused.ends:
        question.end_reason = "stopped by the user"
    return ToolOutcome(refused.text, is_error=True)
