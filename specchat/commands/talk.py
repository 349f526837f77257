"""A conversation as a person has it: what was chosen for the next questions, what was heard, what is to be done next.

The commands of `commands.py` work on a `Talk` and answer with a `Reply`. Draws nothing; no prompt-toolkit and no torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.chat.at_names import mentioned
from specchat.chat.events import Event, Failed, Finished, Routed, Text
from specchat.chat.request import Attachment, Request
from specchat.chat.turn_summary import summary_line
from specchat.commands.notices import Remarks
from specchat.errors import ContextError, SpecchatError
from specchat.host.client import Conversation
from specchat.profile import Models, load_profile


@dataclass(frozen=True)
class Options:
    """What the next questions are asked with."""

    variant: str | None = None
    temperature: float | None = None
    seed: int | None = None


@dataclass
class Talk:
    """A conversation and what a person has chosen for it."""

    conversation: Conversation
    options: Options = Options()
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the profile, for sessions beside it
    may_load: Callable[[Models], bool] = lambda _models: True  # asks the person, where there is somebody to ask
    names: list[str] = field(default_factory=list[str])  # files and folders for the next question
    notice: str = ""  # what of them travelled with the last question, where that needs a word
    sources: tuple[str, ...] = ()  # and where its passages are from
    routed: Routed | None = None
    finished: Finished | None = None
    ended: Finished | Failed | None = None  # how the answer that was heard last came to its end
    _said: list[str] = field(default_factory=list[str], init=False)
    _remarks: defaultdict[str, Remarks] = field(default_factory=lambda: defaultdict(Remarks), init=False)  # by session

    def hear(self, event: Event) -> None:
        """Keep what `/stats` and the status line tell, and what is to be said after an answer."""
        if self.ended:
            self.expect()
        match event:
            case Routed():
                self.routed, self.finished = event, None
            case Text(text=text):
                self._said.append(text)
            case Finished():
                self.finished = self.ended = event
            case Failed():
                self.ended = event
            case _:
                pass
        self._remark(event)

    def expect(self) -> None:
        """An answer is to come; nothing is known of it."""
        self.ended, self._said = None, []

    @property
    def answer(self) -> str:
        """What was said in the answer that was heard last."""
        return "".join(self._said)

    def _remark(self, event: Event) -> None:
        remarks = self._remarks[self.conversation.session]
        remarks.hear(event, self.window if isinstance(event, Finished) else 0)
        if is_too_long(event) and len(self.conversation.turns()) > 1:
            remarks.hear_refusal()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said after an answer, besides what it cost."""
        known = self._remarks[self.conversation.session]
        return (*([f"sources: {', '.join(self.sources)}"] if self.sources else []), *known.lines)

    @property
    def window(self) -> int:
        """Tokens that the conversation may have, 0 where nobody knows."""
        return self.conversation.window or _window_of(self.conversation.profile)

    def request(self, text: str) -> Request:
        """A question with the chosen options, the attached files, and every `@file` that it names."""
        return self.bare_request(text, self._gathered(text))

    def bare_request(self, text: str, files: tuple[Attachment, ...] = (), max_tokens: int | None = None) -> Request:
        """A question with the chosen options; no word of it is taken for the name of a file."""
        options = self.options
        return Request(
            text, files, max_tokens, variant=options.variant, temperature=options.temperature, seed=options.seed
        )

    def _gathered(self, text: str) -> tuple[Attachment, ...]:
        """What the names say about a question; they go with this one only, also when it cannot be asked."""
        names, self.names, self.notice, self.sources = self.names, [], "", ()
        if not (names := [*names, *mentioned(text)]):
            return ()
        from specchat.chat.retrieve import Room, gather

        found = gather(names, text, Room.of_window(load_profile(self.conversation.profile).limits.context))
        self.notice, self.sources = found.notice, found.sources
        return found.files

    @property
    def status(self) -> str:
        """One line about the last answer."""
        if self.routed and self.finished:
            return summary_line(self.routed, self.finished.totals)
        return f"profile {self.conversation.profile}"


def is_too_long(event: Event | None) -> bool:
    """Could a question not be answered because it does not fit into the window?"""
    return isinstance(event, Failed) and event.exit_code == ContextError.exit_code


def _window_of(profile: str) -> int:
    try:
        return load_profile(profile).limits.context
    except SpecchatError:
        return 0  # the host knows it


@dataclass(frozen=True)
class Reply:
    """What a command wants: something shown, a question asked, or the end.

    `then` says what follows when that question was answered, well or not.
    """

    text: str = ""
    ask: Request | None = None
    leaves: bool = False
    then: Callable[[Talk], Reply] | None = None
