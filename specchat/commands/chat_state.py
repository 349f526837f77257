"""A conversation as a person has it: what was chosen for the next questions, what was heard, what is to be done next.

The commands of `commands.py` work on a `Talk` and answer with a `Reply`. Draws nothing; no prompt-toolkit and no torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.at_names import find_mentions
from specchat.chat.events import Event, Failed, Finished, Routed, TextDelta
from specchat.chat.request import Attachment, Request
from specchat.chat.turn_summary import summary_line
from specchat.commands.notices import Notices
from specchat.errors import ContextError, SpecchatError
from specchat.host.client import Conversation
from specchat.profile import Models, load_profile


@dataclass(frozen=True)
class RequestOptions:
    """What the next questions are asked with."""

    variant: str | None = None
    temperature: float | None = None
    seed: int | None = None


@dataclass
class ChatState:
    """A conversation and what a person has chosen for it."""

    conversation: Conversation
    options: RequestOptions = RequestOptions()
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the profile, for sessions beside it
    confirm_load: Callable[[Models], bool] = lambda _models: True  # asks the person, where there is somebody to ask
    pending_names: list[str] = field(default_factory=list[str])  # files and folders for the next question
    attachment_notice: str = ""  # what of them travelled with the last question, where that needs a word
    passage_sources: tuple[str, ...] = ()  # and where its passages are from
    routed: Routed | None = None
    finished: Finished | None = None
    last_outcome: Finished | Failed | None = None  # how the answer that was heard last came to its end
    _answer_parts: list[str] = field(default_factory=list[str], init=False)
    _notices_by_session: defaultdict[str, Notices] = field(
        default_factory=lambda: defaultdict(Notices), init=False
    )  # by session

    def on_event(self, event: Event) -> None:
        """Keep what `/stats` and the status line tell, and what is to be said after an answer."""
        if self.last_outcome:
            self.start_answer()
        match event:
            case Routed():
                self.routed, self.finished = event, None
            case TextDelta(text=text):
                self._answer_parts.append(text)
            case Finished():
                self.finished = self.last_outcome = event
            case Failed():
                self.last_outcome = event
            case _:
                pass
        self._update_notices(event)

    def start_answer(self) -> None:
        """An answer is to come; nothing is known of it."""
        self.last_outcome, self._answer_parts = None, []

    @property
    def answer(self) -> str:
        """What was said in the answer that was heard last."""
        return "".join(self._answer_parts)

    def _update_notices(self, event: Event) -> None:
        remarks = self._notices_by_session[self.conversation.session_id]
        remarks.on_event(event, self.context_window if isinstance(event, Finished) else 0)
        if is_context_overflow(event) and len(self.conversation.turns()) > 1:
            remarks.on_context_overflow()

    @property
    def notices(self) -> tuple[str, ...]:
        """What is to be said after an answer, besides what it cost."""
        known = self._notices_by_session[self.conversation.session_id]
        return (*([f"sources: {', '.join(self.passage_sources)}"] if self.passage_sources else []), *known.lines)

    @property
    def context_window(self) -> int:
        """Tokens that the conversation may have, 0 where nobody knows."""
        return self.conversation.context_window or _profile_context_window(self.conversation.profile)

    def make_request(self, text: str) -> Request:
        """A question with the chosen options, the attached files, and every `@file` that it names."""
        return self.make_bare_request(text, self._collect_attachments(text))

    def make_bare_request(
        self, text: str, files: tuple[Attachment, ...] = (), max_tokens: int | None = None
    ) -> Request:
        """A question with the chosen options; no word of it is taken for the name of a file."""
        options = self.options
        return Request(
            text, files, max_tokens, variant=options.variant, temperature=options.temperature, seed=options.seed
        )

    def _collect_attachments(self, text: str) -> tuple[Attachment, ...]:
        """What the names say about a question; they go with this one only, also when it cannot be asked."""
        names, self.pending_names, self.attachment_notice, self.passage_sources = self.pending_names, [], "", ()
        if not (names := [*names, *find_mentions(text)]):
            return ()
        from specchat.chat.retrieve import ContextBudget, gather_context

        found = gather_context(
            names, text, ContextBudget.of_window(load_profile(self.conversation.profile).limits.context)
        )
        self.attachment_notice, self.passage_sources = found.notice, found.sources
        return found.files

    @property
    def status_line(self) -> str:
        """One line about the last answer."""
        if self.routed and self.finished:
            return summary_line(self.routed, self.finished.totals)
        return f"profile {self.conversation.profile}"


def is_context_overflow(event: Event | None) -> bool:
    """Could a question not be answered because it does not fit into the window?"""
    return isinstance(event, Failed) and event.exit_code == ContextError.exit_code


def _profile_context_window(profile: str) -> int:
    try:
        return load_profile(profile).limits.context
    except SpecchatError:
        return 0  # the host knows it


@dataclass(frozen=True)
class CommandResult:
    """What a command wants: something shown, a question asked, or the end.

    `then` says what follows when that question was answered, well or not.
    """

    text: str = ""
    request: Request | None = None
    should_quit: bool = False
    after_answer: Callable[[ChatState], CommandResult] | None = None
