"""The agent of a chat: answers as the chat does, and with tools where the profile key `agent.mode` says so.

`AgentUI` is how a front end lets it ask the user. The consents of a session are kept here, so a new one begins without
any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

from specchat.app.agent.agent_loop import AgentEvent, AgentLoop, LoopLimits
from specchat.app.agent.agent_tool import AgentTool
from specchat.app.agent.call_consent import AskConsent, Consent, Rules
from specchat.app.agent.instructions import project_instructions, with_section, without_section
from specchat.app.project_files import Buffers, ProjectFiles
from specchat.chat.events import Event, Notice
from specchat.chat.request import Request
from specchat.hub.model_size import is_small
from specchat.profile.keys import AGENT_OFF, AGENT_PLAN

if TYPE_CHECKING:
    from specchat.app.chat_state import ChatState

MIN_RESULT_CHARACTERS, MAX_RESULT_CHARACTERS = 2_000, 40_000  # about a quarter of the window, within these


@dataclass(frozen=True)
class AgentUI:
    """How a front end asks, None where no person can be asked; and the texts that it has and the disk does not."""

    ask_consent: AskConsent | None = None
    confirm: Callable[[str], bool] | None = None
    show_progress: Callable[[str], None] = lambda _line: None
    buffers: Buffers | None = None


@dataclass
class ProjectAgent:
    """The tools of the chat's sources are offered beside our own."""

    chat: ChatState
    _consent: Consent = field(default_factory=Consent)
    _loops: dict[str, AgentLoop] = field(default_factory=dict[str, AgentLoop])  # by conversation
    _instructions: str | None = None

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event | AgentEvent]:
        """The events of the answer, and of the calls and answers that follow it."""
        chat = self.chat
        values = chat.conversation.settings.values
        mode = chat.agent_mode or str(values.get("agent.mode", AGENT_OFF))
        values = {**values, "agent.mode": mode}
        system = str(values.get("prompt.system") or "")
        if mode == AGENT_OFF:
            self._set_system(system, without_section(system))
            yield from chat.ask(request, cancelled)
            return
        files = ProjectFiles(chat.workspace, chat.ui.buffers)
        if self._instructions is None:
            found = project_instructions(ProjectFiles(chat.workspace), chat.ui.confirm)
            self._instructions = found.text
            if found.notice:
                yield Notice(found.notice)
        is_plan = mode == AGENT_PLAN
        self._set_system(system, with_section(system, chat.workspace.main_root.name, self._instructions, is_plan))
        other_tools = () if is_plan else chat.sources.tools(cancelled)  # they may act, so plan mode has none
        yield from map(Notice, chat.sources.take_notices())
        yield from self._loop(values, files, other_tools).run(chat.ask, request, cancelled)

    def _loop(self, values: Mapping[str, Any], files: ProjectFiles, other_tools: Sequence[AgentTool]) -> AgentLoop:
        """The loop of this conversation, with the settings of now."""
        from specchat.app.agent.read_tools import existing_files

        allow = (*values.get("agent.allow", ()), *self.chat.allow, *self.chat.sources.allow_rules())
        is_plan = values.get("agent.mode") == AGENT_PLAN
        self._consent.rules = Rules.parse(allow, values.get("agent.deny", ()), is_read_only=is_plan)
        self._consent.ask = self.chat.ui.ask_consent
        characters = min(max(self.chat.conversation.window_tokens, MIN_RESULT_CHARACTERS), MAX_RESULT_CHARACTERS)
        own = self._own_tools(files, characters, float(values.get("agent.command_seconds", 120)))
        loop = self._loops.setdefault(self.chat.conversation.session_id, AgentLoop((), self._consent))
        settings = self.chat.conversation.settings
        loop.tools, loop.limits = [*own, *other_tools], LoopLimits(int(values.get("agent.rounds", 25)), characters)
        loop.existing_files = partial(existing_files, files) if is_small(settings.profile.models) else tuple
        return loop

    def _own_tools(self, files: ProjectFiles, characters: int, command_seconds: float) -> list[AgentTool]:
        from specchat.app.agent.change_tools import EditTool, RunTool, WriteTool, session_rewrite
        from specchat.app.agent.read_tools import ListTool, ReadTool, SearchTool

        return [
            ReadTool(files, characters), ListTool(files, characters), SearchTool(files, characters),
            EditTool(files, session_rewrite(self.chat, self.chat.ui.show_progress)), WriteTool(files),
            RunTool(files, characters, command_seconds),
        ]  # fmt: skip

    def _set_system(self, old: str, new: str) -> None:
        if new != old:
            self.chat.conversation.change({"prompt.system": new})
