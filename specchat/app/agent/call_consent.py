"""Whether a call may run: the one place that decides it, and it asks the user, not the model.

Reading inside the project needs no consent. Everything else runs only if the user says so: now, for this session, by an
option, or by a rule of the profile or of a trusted project file. A rule is `TOOL`, or `TOOL:PATTERN` where the pattern
is about the command of `run` (`command_rules.py`) or the path of a file. Rules that deny come first; where it is not
certain whether one does, the user is asked. In plan mode only reading is allowed.
What a file, a tool or the model says is never looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from specchat.app.agent import command_rules
from specchat.app.agent.agent_tool import AgentTool, Effect, ScopedTool
from specchat.app.consent import Answer, PlannedChange
from specchat.chat.tools import ToolCall


@dataclass(frozen=True)
class ConsentQuestion:
    """What the user decides about. `summary` is one line; `change` is shown as a diff before it is written."""

    call: ToolCall
    effect: Effect
    summary: str
    always: str  # what ALWAYS will cover, in words
    change: PlannedChange | None = None


AskConsent = Callable[[ConsentQuestion], Answer]
ANSWER_KEYS = {"y": Answer.ONCE, "a": Answer.ALWAYS, "n": Answer.NO, "s": Answer.STOP, "q": Answer.STOP}


@dataclass(frozen=True)
class Rule:
    tool: str
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Rule:
        tool, _, pattern = text.strip().partition(":")
        return cls(tool.strip(), pattern.strip())

    def denies(self, tool: AgentTool, arguments: Mapping[str, Any]) -> bool | None:
        """Whether it is about this call; None where that is not certain."""
        return self._is_about(tool, arguments, command_rules.is_denied)

    def allows(self, tool: AgentTool, arguments: Mapping[str, Any]) -> bool:
        """Whether it is about this call, and a pattern of commands does not cover more than it seems to."""
        return bool(self._is_about(tool, arguments, command_rules.is_allowed))

    def _is_about(
        self, tool: AgentTool, arguments: Mapping[str, Any], matches_line: Callable[[str, str], bool | None]
    ) -> bool | None:
        """By name and pattern. For an EXTERNAL tool the whole text is the pattern of its name."""
        if tool.effect is Effect.EXTERNAL:
            text = f"{self.tool}:{self.pattern}" if self.pattern else self.tool
            return fnmatchcase(tool.tool.name, text)
        if self.tool != tool.tool.name or not self.pattern:
            return self.tool == tool.tool.name
        matches = matches_line if tool.effect is Effect.EXECUTE else fnmatchcase
        return matches(subject_of(tool, arguments), self.pattern)


@dataclass(frozen=True)
class Rules:
    """What the user decided beforehand."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    is_read_only: bool = False

    @classmethod
    def parse(cls, allow: Iterable[str], deny: Iterable[str] = (), *, is_read_only: bool = False) -> Rules:
        return cls(tuple(map(Rule.parse, allow)), tuple(map(Rule.parse, deny)), is_read_only)


@dataclass(frozen=True)
class Refused:
    """Why a call does not run, for the model. `ends`: the user wants no further calls."""

    text: str
    ends: bool = False


@dataclass
class Consent:
    """The decisions of one session; `ask` is None where no person can be asked."""

    rules: Rules = Rules()
    ask: AskConsent | None = None
    _always: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def refusal(self, tool: AgentTool, arguments: Mapping[str, Any]) -> Refused | None:
        """Why this call cannot run whatever the user says now; None when it may be asked about or needs no consent."""
        name = tool.tool.name
        if any(rule.denies(tool, arguments) for rule in self.rules.deny):
            return Refused(f"{name}: a rule of the user denies this call")
        if tool.effect is Effect.READ:
            return None
        if self.rules.is_read_only:
            return Refused(f"{name}: not in plan mode, which only reads; describe what you would do")
        if not self.ask and not self._is_allowed(tool, arguments):
            gives = f"--allow {name} gives it, unless a rule may deny the call"
            return Refused(f"{name}: needs the consent of the user, who cannot be asked here; {gives}")
        return None

    def decide(
        self, call: ToolCall, tool: AgentTool, arguments: Mapping[str, Any], change: PlannedChange | None = None
    ) -> Refused | None:
        """None when the call may run now; it asks the user if that is not settled yet."""
        if refused := self.refusal(tool, arguments):
            return refused
        warning = change.warning if change else ""
        if tool.effect is Effect.READ or (self._is_allowed(tool, arguments) and not warning):
            return None
        if self.ask is None:
            return Refused(f"{change.path if change else tool.tool.name}: {warning}; nothing is written")
        scope, summary = _scope(tool, arguments), tool.describe(arguments)
        summary = f"{summary} · look closely: {warning}" if warning else summary
        always = "always run this command" if scope[1] else f"always allow {tool.tool.name}"
        answer = self.ask(ConsentQuestion(call, tool.effect, summary, always, change))
        match answer:
            case Answer.ONCE:
                return None
            case Answer.ALWAYS:
                self._always.add(scope)
                return None
            case Answer.NO:
                return Refused(f"{tool.tool.name}: the user declined this call; do not repeat it")
            case Answer.STOP:
                return Refused(f"{tool.tool.name}: the user declined this call and stopped the work", ends=True)

    def _is_allowed(self, tool: AgentTool, arguments: Mapping[str, Any]) -> bool:
        if _scope(tool, arguments) in self._always:
            return True
        may_be_denied = any(rule.denies(tool, arguments) is None for rule in self.rules.deny)
        return not may_be_denied and any(rule.allows(tool, arguments) for rule in self.rules.allow)


def subject_of(tool: AgentTool, arguments: Mapping[str, Any]) -> str:
    """What patterns are about; "" for a tool whose calls do not differ in that."""
    return tool.subject(arguments) if isinstance(tool, ScopedTool) else ""


def _scope(tool: AgentTool, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """What ALWAYS covers: the tool, and of a tool that executes this very command."""
    return tool.tool.name, subject_of(tool, arguments) if tool.effect is Effect.EXECUTE else ""
