"""The tool `run`: a shell command in the project folder."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.app.agent.tool_schemas import schema_text
from specchat.bounded_command import SHELL, CommandRun, HeadAndTail, run_bounded
from specchat.chat.tools import Tool
from specchat.errors import InputError

if TYPE_CHECKING:
    from specchat.app.project_files import ProjectFiles

ENVIRONMENT = {"SPECCHAT_AGENT": "1"}  # so that a program can know that no person waits for it


@dataclass(frozen=True)
class RunTool:
    files: ProjectFiles
    max_characters: int
    limit_seconds: float
    effect: Effect = Effect.EXECUTE
    tool: Tool = Tool(
        "run",
        "Run a shell command in the project folder and return its output. It gets no input and has a time limit.",
        schema_text({"command": {"type": "string", "minLength": 1}}, "command"),
    )

    def describe(self, arguments: Mapping[str, Any]) -> str:
        return f"run {arguments['command']}"

    def subject(self, arguments: Mapping[str, Any]) -> str:
        return arguments["command"]

    def run(self, arguments: Mapping[str, Any], cancelled: threading.Event) -> ToolOutcome:
        command = CommandRun((*SHELL, arguments["command"]), self.files.root, ENVIRONMENT)
        try:
            ran = run_bounded(command, cancelled, self.limit_seconds, HeadAndTail(self.max_characters // 2))
        except InputError as error:
            return ToolOutcome(str(error), is_error=True)
        output = f"{ran.output.rstrip(chr(10))}\n" if ran.output.strip() else ""
        return ToolOutcome(f"{output}[{ran.ending}]", is_error=ran.exit_code != 0)
