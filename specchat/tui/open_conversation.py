"""The conversation of the screen: opened, switched, and its turns posted. For the thread of the session worker only."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from specchat.app.chat_state import ChatState
from specchat.errors import HostError, SpecchatError, UsageError
from specchat.history.history_reader import StoredTurn
from specchat.host.client import Conversation, SessionRequest
from specchat.tui.worker_messages import (
    ConversationNamed,
    ConversationOpened,
    EngineLost,
    MessageQueue,
    TranscriptNote,
    Versions,
    VersionsChanged,
)

NO_ENGINE_MESSAGE = "there is no engine process; restart it first"


class OpenConversation:
    def __init__(self, session_request: SessionRequest, worker_messages: MessageQueue) -> None:
        self._session_request, self._worker_messages = session_request, worker_messages
        self._chat: ChatState | None = None

    @property
    def chat(self) -> ChatState:
        if self._chat is None:
            raise HostError(NO_ENGINE_MESSAGE)
        return self._chat

    def connect(self) -> None:
        """Open the conversation, or open it again after the host was lost."""
        try:
            if self._chat:
                lost = self._chat.conversation
                self._session_request = replace(
                    self._session_request, session_id=lost.session_id, settings=lost.settings
                )
                lost.close()
            self._chat = ChatState(Conversation(self._session_request, "specchat"))
        except (SpecchatError, ConnectionError) as error:
            self._worker_messages.put(EngineLost(str(error)))
            return
        self.post()

    def disconnect(self) -> None:
        if self._chat:
            self._chat.conversation.close()

    def post(self, selected_position: int | None = None) -> None:
        """Post the conversation and its turns; an unreadable history is a warning, not an error."""
        conversation = self.chat.conversation
        turns, warnings = list[StoredTurn](), [conversation.warning]
        try:
            turns = conversation.turns()
            versions = self._versions(turns)
        except HostError as error:
            warnings.append(str(error))
            versions = ()
        warning = "; ".join(filter(None, warnings))
        opened = ConversationOpened(
            conversation.session_id, conversation.name, conversation.profile, tuple(turns), warning,
            conversation.context_window, conversation.model, versions, selected_position,
        )  # fmt: skip
        self._worker_messages.put(opened)

    def post_versions(self) -> None:
        """After the end of the answer, which must not wait for the history; an unreadable one has no versions."""
        with suppress(HostError, ConnectionError):
            self._worker_messages.put(VersionsChanged(self._versions(self.chat.conversation.turns())))

    def post_name(self, name: str) -> None:
        self.chat.conversation.name = name
        self._worker_messages.put(ConversationNamed(name))

    def post_first_name(self) -> None:
        """The host names a conversation after its first request."""
        if not self.chat.conversation.name:
            self.post_name(str(self.chat.conversation.call("session_info")["name"]))

    def switch_version(self, position: int, step: int) -> None:
        """Show the version before or after the shown one, with what was asked after it."""
        conversation = self.chat.conversation
        number, count = self._versions(conversation.turns())[position]
        if 1 <= number + step <= count:
            conversation.select_version(position, number + step)
            self.post(selected_position=position)

    def rewind_to(self, position: int) -> None:
        """Take back the turns from there on; they stay as a version."""
        conversation = self.chat.conversation
        conversation.rewind(len(conversation.turns()) - position)
        self.post()

    def fork(self, position: int) -> None:
        conversation = self.chat.conversation
        turns = conversation.turns()
        if not 0 <= position < len(turns):
            raise UsageError("this request is not part of the conversation")
        conversation.switch_session(conversation.call("fork", {"turn": turns[position].id}))
        self.post()
        self._worker_messages.put(TranscriptNote("a copy of this conversation up to here; the original is unchanged"))

    def open(self, session_id: str, *, is_copy: bool = False) -> None:
        """Continue that conversation, or a copy of it."""
        if self._chat is None and not is_copy:
            self._session_request = replace(self._session_request, session_id=session_id, settings=None)
            self.connect()
            return
        conversation = self.chat.conversation
        method = "fork" if is_copy else "open_session"
        conversation.switch_session(conversation.call(method, {"session": session_id}))
        self.post()

    def _versions(self, turns: Sequence[StoredTurn]) -> Versions:
        """Of each turn, which version it is, and of how many."""
        known = self.chat.conversation.versions()
        own = [(turn.id, known.get(turn.id, (turn.id,))) for turn in turns]
        return tuple((ids.index(id) + 1 if id in ids else 1, len(ids)) for id, ids in own)
