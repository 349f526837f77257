"""The interface of a tool of the agent: what the model may call, what it does to the world, and what came of it.

Also a call and its outcome in one line, for every front end that prints lines.

A tool does not ask for consent; its caller does, before it calls `run` (`call_consent.py`).
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from specchat.app.consent import PlannedChange
from specchat.chat.tools import Tool

MAX_SUMMARY_CHARACTERS = 120


class Effect(Enum):
    """What a call does, which decides whether the user is asked first."""

    READ = "read"  # files of the project; needs no consent
    WRITE = "write"  # changes files, which can be undone
    EXECUTE = "execute"  # runs a command
    EXTERNAL = "external"  # a tool of another program, such as an MCP server


@dataclass(frozen=True)
class ToolOutcome:
    """The text for the model; an error is a text, too, and the model may try something else."""

    text: str
    is_error: bool = False


class AgentTool(Protocol):
    """A tool. `arguments` have been checked against the schema of `tool`."""

    @property
    def tool(self) -> Tool: ...

    @property
    def effect(self) -> Effect: ...

    def describe(self, arguments: Mapping[str, Any]) -> str:
        """One line for the question of consent and the screen, for example the command."""
        ...

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        """Do it and wait for the end. Bounded in time and text; a failure is an outcome, never an exception."""
        ...


@runtime_checkable
class ScopedTool(AgentTool, Protocol):
    """A tool whose calls differ in what they touch."""

    def subject(self, arguments: Mapping[str, Any]) -> str:
        """What rules and "always" are about: the command, or the file with links resolved."""
        ...


@runtime_checkable
class ReportingTool(AgentTool, Protocol):
    """A tool that says how far a call is."""

    def run_reporting(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> Iterator[str | ToolOutcome]:
        """What `run` does: lines for the user meanwhile, and the outcome as the last one."""
        ...


class WritableChange(PlannedChange, Protocol):
    """A planned change that can be made."""

    def apply(self) -> ToolOutcome:
        """Write the file, if it still is as it was when the change was planned."""
        ...


@runtime_checkable
class ChangingTool(AgentTool, Protocol):
    """A tool whose change can be shown before the user decides; `run` plans and applies it."""

    def plan(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> WritableChange | ToolOutcome:
        """The change, or why there is none."""
        ...


def call_line(summary: str, outcome: ToolOutcome) -> str:
    """For example "read shop/cart.py: 5 lines", or the last line of an outcome that is a status."""
    lines = [line for line in outcome.text.strip().split("\n") if line.strip()] or ["nothing"]
    last = lines[-1].strip()
    is_status = outcome.is_error or len(lines) == 1 or last.startswith("[")
    return f"{short(summary)}: {short(last.strip('[]')) if is_status else f'{len(lines)} lines'}"


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SUMMARY_CHARACTERS else f"{line[: MAX_SUMMARY_CHARACTERS - 3]}..."
