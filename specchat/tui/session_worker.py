"""The worker thread of the TUI: it owns the conversation with the host and runs one job after another.

Results go to the message queue in order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event as Flag
from typing import TYPE_CHECKING

from specchat.app.agent.agent_loop import RoundStarted
from specchat.app.agent.project_agent import AgentUI
from specchat.app.ask import Answered, Asked, AskEvent, ask
from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.command_registry import COMMAND_PATTERN, COMMANDS, run_line
from specchat.app.question import Question
from specchat.chat.events import Failed, Notice
from specchat.chat.request import Request
from specchat.errors import CancelledError, DeclinedError, HostError, SpecchatError, UsageError
from specchat.history.history_reader import StoredTurn
from specchat.host.client import Conversation, SessionRequest
from specchat.tui.job_thread import JobThread
from specchat.tui.worker_messages import (
    AnswerEnded,
    ConversationNamed,
    ConversationOpened,
    EditFinished,
    EditProgress,
    EngineLost,
    MessageQueue,
    QuitRequested,
    RequestSent,
    TranscriptNote,
    Versions,
    VersionsChanged,
    WorkerMessage,
)

if TYPE_CHECKING:
    from specchat.tui.screen_edit_ui import ScreenEditUI

CONNECTION_LOST = "the engine process closed the connection"
NO_ENGINE_MESSAGE = "there is no engine process; restart it first"


class SessionWorker(JobThread):
    """Runs requests and commands on its thread. Other threads may call start, submit, answer_input_request,
    watch_probabilities and close.
    """

    def __init__(
        self, session_request: SessionRequest, worker_messages: MessageQueue, client_name: str = "specchat"
    ) -> None:
        super().__init__("session-worker", self._post_error, self._disconnect)
        self._session_request, self._worker_messages, self._client_name = session_request, worker_messages, client_name
        self._chat: ChatState | None = None
        self._edit_ui: ScreenEditUI | None = None
        self._wants_probabilities = False

    def start(self) -> None:
        self.submit(self.connect)
        super().start()

    def answer_input_request(self, text: str | None) -> None:
        if self._edit_ui:
            self._edit_ui.put_answer(text)

    def watch_probabilities(self, is_watched: bool) -> None:
        """Whether the next answers come with the probabilities of their tokens."""
        self._wants_probabilities = is_watched

    def close(self) -> None:
        """Disconnect, and end the question to the user that a job may wait for."""
        self.answer_input_request(None)
        super().close()

    def _post_error(self, error: Exception) -> None:
        is_lost = isinstance(error, ConnectionError)
        self._worker_messages.put(
            EngineLost(CONNECTION_LOST) if is_lost else TranscriptNote(_error_line(error), is_error=True)
        )

    def _disconnect(self) -> None:
        if self._chat:
            self._chat.conversation.close()

    def connect(self) -> None:
        """Open the conversation, or open it again after the host was lost."""
        try:
            if self._chat:
                lost = self._chat.conversation
                self._session_request = replace(
                    self._session_request, session_id=lost.session_id, settings=lost.settings
                )
                lost.close()
            conversation = Conversation(self._session_request, self._client_name)
            self._chat = ChatState(conversation)
        except (SpecchatError, ConnectionError) as error:
            self._worker_messages.put(EngineLost(str(error)))
            return
        self._post_opened()

    @property
    def _connected_chat(self) -> ChatState:
        if self._chat is None:
            raise HostError(NO_ENGINE_MESSAGE)
        return self._chat

    def _post_opened(self, selected_position: int | None = None) -> None:
        """Post the conversation and its turns; an unreadable history is a warning, not an error."""
        conversation = self._connected_chat.conversation
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

    def _versions(self, turns: Sequence[StoredTurn]) -> Versions:
        """Of each turn, which version it is, and of how many."""
        known = self._connected_chat.conversation.versions()
        own = [(turn.id, known.get(turn.id, (turn.id,))) for turn in turns]
        return tuple((ids.index(id) + 1 if id in ids else 1, len(ids)) for id, ids in own)

    def switch_version(self, position: int, step: int) -> None:
        """Show the version before or after the shown one, with what was asked after it."""
        conversation = self._connected_chat.conversation
        number, count = self._versions(conversation.turns())[position]
        if 1 <= number + step <= count:
            conversation.select_version(position, number + step)
            self._post_opened(selected_position=position)

    def run_line(self, line: str, cancelled: Flag) -> None:
        if not (match := COMMAND_PATTERN.match(line.strip())):
            self._ask(Question(line), cancelled)
            return
        chat = self._connected_chat
        chat.sources.cancelled = cancelled
        with self._dialogue(cancelled) as edit_ui:
            chat.ui = self._agent_ui(edit_ui)
            result = run_line(chat, line)
        if match["name"] == "rename":
            self._post_name(chat, (match["argument"] or "").strip())
        elif (command := COMMANDS.get(match["name"])) and command.changes_conversation:
            self._post_opened()
        self._handle_result(chat, result, cancelled)

    @contextmanager
    def _dialogue(self, cancelled: Flag) -> Generator[ScreenEditUI]:
        """Meanwhile a job may ask the user; `answer_input_request` has the answers."""
        from specchat.tui.screen_edit_ui import ScreenEditUI  # it imports slowly

        self._edit_ui = ScreenEditUI(self._worker_messages, cancelled)
        try:
            yield self._edit_ui
        finally:
            self._edit_ui = None

    def _agent_ui(self, edit_ui: ScreenEditUI) -> AgentUI:
        show: Callable[[str], None] = lambda line: self._worker_messages.put(EditProgress(line))
        return AgentUI(edit_ui.ask_consent, edit_ui.confirm, show)

    def _handle_result(self, chat: ChatState, result: CommandResult, cancelled: Flag) -> None:
        """Show the text, quit, send the request; then continue with `after_answer`, perhaps in another conversation."""
        while True:
            if result.text and not result.is_conversation:
                self._worker_messages.put(TranscriptNote(result.text))
            if result.should_quit:
                self._worker_messages.put(QuitRequested())
            if request := result.request:
                self._ask(request, cancelled)
            if result.after_answer is None:
                return
            result = result.after_answer(chat)
            self._post_opened()

    def run_file_command(self, line: str, cancelled: Flag) -> None:
        """Run a file command, which may ask the user."""
        from specchat.app.file_edits import run_file_command  # imported with the first edit

        try:
            with self._dialogue(cancelled) as edit_ui:
                finished = EditFinished(run_file_command(self._connected_chat, line, edit_ui.edit_ui))
        except (CancelledError, DeclinedError) as reason:
            finished = EditFinished(str(reason))
        except ConnectionError:
            finished = EditFinished(f"{CONNECTION_LOST}; nothing is written", is_error=True)
        except Exception as error:  # noqa: BLE001 (the edge: the screen survives a failed edit)
            finished = EditFinished(_error_line(error), is_error=True)
        self._worker_messages.put(finished)
        self._worker_messages.put(AnswerEnded(is_stored=False))

    def _ask(self, question: Question | Request, cancelled: Flag) -> None:
        is_stored = False
        try:
            chat = self._connected_chat
            with self._dialogue(cancelled) as edit_ui:
                chat.wants_probabilities, chat.ui = self._wants_probabilities, self._agent_ui(edit_ui)
                for event in ask(chat, question, cancelled):
                    is_stored = (is_stored or isinstance(event, Asked)) and not _is_refused(event)
                    for message in _messages_of(event, is_stored):
                        self._worker_messages.put(message)
            if not chat.conversation.name:  # the host names a conversation after its first request
                self._post_name(chat, str(chat.conversation.call("session_info")["name"]))
        except SpecchatError as error:
            is_stored = False
            self._worker_messages.put(Failed.from_error(error))
        except ConnectionError:
            self._worker_messages.put(Failed(CONNECTION_LOST, HostError.exit_code))
        except Exception as error:  # noqa: BLE001 (the edge: the screen survives a failed turn)
            self._worker_messages.put(Failed(_error_line(error)))
        finally:
            self._worker_messages.put(AnswerEnded(is_stored))
        if is_stored:
            self._post_versions()

    def _post_versions(self) -> None:
        """After the end of the answer, which must not wait for the history; an unreadable one has no versions."""
        with suppress(HostError, ConnectionError):
            turns = self._connected_chat.conversation.turns()
            self._worker_messages.put(VersionsChanged(self._versions(turns)))

    def _post_name(self, chat: ChatState, name: str) -> None:
        chat.conversation.name = name
        self._worker_messages.put(ConversationNamed(name))

    def replace_question(self, position: int, text: str, cancelled: Flag) -> None:
        """Send another text in place of the request at this position. The turns from there on stay as a version."""
        conversation = self._connected_chat.conversation
        conversation.rewind(len(conversation.turns()) - position)
        self._post_opened()
        self._ask(Question(text), cancelled)

    def fork(self, position: int) -> None:
        conversation = self._connected_chat.conversation
        turns = conversation.turns()
        if not 0 <= position < len(turns):
            raise UsageError("this request is not part of the conversation")
        conversation.switch_session(conversation.call("fork", {"turn": turns[position].id}))
        self._post_opened()
        self._worker_messages.put(TranscriptNote("a copy of this conversation up to here; the original is unchanged"))

    def open(self, session_id: str, *, is_copy: bool = False) -> None:
        """Continue that conversation, or a copy of it."""
        if self._chat is None and not is_copy:
            self._session_request = replace(self._session_request, session_id=session_id, settings=None)
            self.connect()
            return
        conversation = self._connected_chat.conversation
        method = "fork" if is_copy else "open_session"
        conversation.switch_session(conversation.call(method, {"session": session_id}))
        self._post_opened()


def _messages_of(event: AskEvent, is_stored: bool) -> Iterator[WorkerMessage]:
    """What the screen is told of an event; each answer of the work with tools is a turn of its own."""
    match event:
        case Asked(request=request):
            yield RequestSent(request)
        case Notice(text=text):
            yield TranscriptNote(text)
        case Answered(notices=notices):
            yield from map(TranscriptNote, notices)
        case RoundStarted(request=request):
            yield AnswerEnded(is_stored)
            yield RequestSent(request)
        case _:
            yield event


def _error_line(error: Exception) -> str:
    return str(error) if isinstance(error, SpecchatError) else f"unexpected {type(error).__name__}: {error}"


def _is_refused(event: object) -> bool:
    return isinstance(event, Failed) and event.message.startswith("this is too much at once")
