"""The state that a front end keeps for a conversation: files for the next question, the last answer, notices.

The functions of `command_registry.py` read and change a `ChatState` and return a `CommandResult`. This module draws
nothing and imports neither prompt_toolkit nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING

from specchat.app.agent.project_agent import AgentUI, ProjectAgent
from specchat.app.tool_sources import ToolSources, front_end_sources
from specchat.chat.events import Event, Failed, Finished, Routed, TextDelta, Totals
from specchat.chat.request import Request
from specchat.chat.turn_summary import summary_line
from specchat.context.at_names import THIS_FOLDER, FileAccess
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.errors import ContextError
from specchat.host.client import Conversation

if TYPE_CHECKING:
    from specchat.app.part_reader import PartReader
    from specchat.app.question import Question

FULL_CONTEXT_SHARE = 0.9
COMPACT_HINT = "/compact summarizes this conversation and continues in a copy"


@dataclass
class ChatState:
    conversation: Conversation
    sources: ToolSources = field(default_factory=front_end_sources)
    workspace: WorkspaceRoots = field(default_factory=lambda: WorkspaceRoots(Path.cwd()))  # of the tools of the agent
    ui: AgentUI = AgentUI()
    allow: Sequence[str] = ()  # rules of consent beside those of the profile
    agent_mode: str = ""  # in the place of that of the profile
    access: FileAccess = THIS_FOLDER  # where names of files lead
    has_commands: bool = True  # whether a notice may name a slash command
    wants_probabilities: bool = False  # whether answers come with the probabilities of their tokens
    pending_names: tuple[str, ...] = ()  # files and folders to attach to the next question
    routed: Routed | None = None
    finished: Finished | None = None
    last_outcome: Finished | Failed | None = None  # how the last answer ended
    notices: tuple[str, ...] = ()  # lines about the last answer; a question has several answers when tools are used
    agent: ProjectAgent = field(init=False)
    _part_reader: PartReader | None = field(default=None, init=False)  # made for the first request with files
    answer: str = field(default="", init=False)  # the last one, as far as it has come
    _full_sessions: set[str] = field(default_factory=set[str], init=False)  # whose context is nearly full

    def __post_init__(self) -> None:
        self.agent = ProjectAgent(self)

    def on_event(self, event: Event) -> None:
        if self.last_outcome:
            self.start_answer()
        match event:
            case Routed():
                self.routed, self.finished = event, None
            case TextDelta(text=text):
                self.answer += text
            case Finished():
                self.finished = self.last_outcome = event
                self.answer = event.without_repeats(self.answer)
            case Failed():
                self.last_outcome = event
            case _:
                pass
        self.notices = tuple(filter(None, self._notices_about(event)))

    def start_answer(self) -> None:
        self.last_outcome, self.answer = None, ""

    def _notices_about(self, event: Event) -> Iterator[str]:
        if isinstance(event, Finished):
            yield event.explanation
            yield self._context_notice(event.totals) if self.has_commands else ""
        elif self.has_commands and is_context_overflow(event) and len(self.conversation.turns()) > 1:
            yield COMPACT_HINT

    def _context_notice(self, totals: Totals) -> str:
        """The hint, once each time the context fills up."""
        session, window = self.conversation.session_id, self.conversation.window_tokens
        tokens = totals.prompt_tokens + totals.completion_tokens
        was_full = session in self._full_sessions
        if not window or tokens <= FULL_CONTEXT_SHARE * window:
            self._full_sessions.discard(session)
            return ""
        self._full_sessions.add(session)
        return "" if was_full else f"the context is {tokens / window:.0%} full; {COMPACT_HINT}"

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """The events of one answer; files that do not fit the context window are read in parts before it."""
        if not request.files:
            yield from self.conversation.ask(request, cancelled)
            return
        from specchat.app.part_reader import PartReader

        self._part_reader = self._part_reader or PartReader(self.conversation)
        yield from self._part_reader.ask(request, self.conversation.window_tokens, cancelled)

    @property
    def status_line(self) -> str:
        if self.routed and self.finished:
            return summary_line(self.finished.totals, self.routed, self.finished.finish_reason)
        return f"profile {self.conversation.profile}"


def is_context_overflow(event: Event | None) -> bool:
    return isinstance(event, Failed) and event.exit_code == ContextError.exit_code


@dataclass(frozen=True)
class CommandResult:
    """What the front end does after a command: show a text, ask a question (a `Request` as it is), or quit.

    `after_answer` runs when the request has ended, whether it succeeded or not.
    """

    text: str = ""
    request: Question | Request | None = None
    should_quit: bool = False
    is_conversation: bool = False  # the text is that of the conversation, which a screen shows anyway
    after_answer: Callable[[ChatState], CommandResult] | None = None
