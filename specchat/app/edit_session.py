"""The conversation that rewrites files: one beside that of the user, opened by the first edit that needs a model."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import cached_property
from threading import Event as Flag

from specchat.app.model_ability import ModelAbility
from specchat.chat.events import Event, Totals
from specchat.chat.request import Request
from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import summary_line
from specchat.edit.edit_turn import Conversation, EditRun
from specchat.edit.measured_formats import add_counts
from specchat.errors import EditError
from specchat.host.client import Conversation as HostedConversation
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings

Opener = Callable[[], AbstractContextManager[Conversation]]


def edit_request(request: SessionRequest) -> SessionRequest:
    """The same request for an edit, with the settings that edits have beside a conversation with these."""
    settings = request.settings or read_settings()
    return replace(request, session_id="", settings=settings.for_edits(), kind="edit")


class EditSession(AbstractContextManager["EditSession"]):
    """One session of edits. Each file begins anew, unless all are edited together."""

    def __init__(
        self,
        request: SessionRequest,
        cancelled: Flag,
        client_name: str = "specchat",
        open_conversation: Opener | None = None,
        temperature: float | None = None,
    ) -> None:
        self._request, self.cancelled, self._temperature = request, cancelled, temperature
        self._open: Opener = open_conversation or (lambda: HostedConversation(request, client_name))
        self._opened = ExitStack()
        self._conversation: Conversation | None = None
        self.runs = list[EditRun]()

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        self._opened.close()
        counts, is_ended = sum((run.counts for run in self.runs), Counter[str]()), isinstance(error, EditError | None)
        if counts and is_ended and self._request.is_stored and not self.cancelled.is_set():
            add_counts(self.ability.model, counts)

    @property
    def window_tokens(self) -> int:
        """The context window: as the host reports it, else as the profile limits it."""
        conversation = self._conversation
        if isinstance(conversation, HostedConversation):
            return conversation.window_tokens
        return (self._request.settings or read_settings()).profile.limits.context

    @cached_property
    def ability(self) -> ModelAbility:
        """What the model is asked for."""
        profile = (self._request.settings or read_settings()).profile
        return replace(ModelAbility.of(profile.models), chosen_format=profile.prompt.edit_format)

    @property
    def summary(self) -> str:
        """What the answers cost, "" without answers."""
        route = next((run.route for run in reversed(self.runs) if run.route), None)
        return summary_line(self.totals, route) if route else ""

    @property
    def totals(self) -> Totals:
        """What the answers of all runs took."""
        return sum_totals([each for run in self.runs for each in run.finished_turns])

    def open(self) -> Conversation:
        """Open the conversation, which knows the window of the model."""
        if self._conversation is None:
            self._conversation = self._opened.enter_context(self._open())
        return self._conversation

    def new_run(self, *, keeps_context: bool = False) -> EditRun:
        """The requests of another file."""
        if self.runs and not keeps_context:
            self._restart()
        self.runs.append(EditRun(self, self.cancelled, self._restart, self._temperature))
        return self.runs[-1]

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        return self.open().ask(request, cancelled)

    def _restart(self) -> None:
        """Let the next request begin anew; what replaces the host in tests cannot."""
        conversation = self._conversation
        if isinstance(conversation, HostedConversation):
            conversation.switch_session(conversation.open_new_session())
