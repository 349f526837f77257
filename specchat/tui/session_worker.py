"""The worker thread of the TUI: one request or command after another. Results go to the message queue, in order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from typing import TYPE_CHECKING

from specchat.app.agent.agent_loop import RoundStarted
from specchat.app.agent.project_agent import AgentUI
from specchat.app.ask import Answered, Asked, AskEvent, ask
from specchat.app.chat_state import CommandResult
from specchat.app.command_registry import COMMAND_PATTERN, COMMANDS, run_line
from specchat.app.question import Question
from specchat.chat.events import Failed
from specchat.chat.request import Request
from specchat.errors import CancelledError, DeclinedError, HostError, SpecchatError
from specchat.host.client import SessionRequest
from specchat.tui.job_thread import JobThread
from specchat.tui.open_conversation import OpenConversation
from specchat.tui.worker_messages import (
    AnswerEnded,
    EditFinished,
    EngineLost,
    MessageQueue,
    TranscriptNote,
    WorkerMessage,
)

if TYPE_CHECKING:
    from specchat.tui.screen_edit_ui import ScreenEditUI

CONNECTION_LOST = "the engine process closed the connection"


class SessionWorker(JobThread):
    """Other threads may call start, submit, answer_input_request, watch_probabilities and close."""

    def __init__(self, session_request: SessionRequest, worker_messages: MessageQueue) -> None:
        self.conversation = OpenConversation(session_request, worker_messages)
        super().__init__("session-worker", self._post_error, self.conversation.disconnect)
        self._worker_messages = worker_messages
        self._edit_ui: ScreenEditUI | None = None
        self._wants_probabilities = False

    def start(self) -> None:
        self.submit(self.conversation.connect)
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

    def run_line(self, line: str, cancelled: Flag) -> None:
        if not (match := COMMAND_PATTERN.match(line.strip())):
            self._ask(Question(line), cancelled)
            return
        chat = self.conversation.chat
        chat.sources.cancelled = cancelled
        with self._dialogue(cancelled):
            result = run_line(chat, line)
        if match["name"] == "rename":
            self.conversation.post_name((match["argument"] or "").strip())
        elif (command := COMMANDS.get(match["name"])) and command.changes_conversation:
            self.conversation.post()
        self._handle_result(result, cancelled)

    @contextmanager
    def _dialogue(self, cancelled: Flag) -> Generator[ScreenEditUI]:
        """Meanwhile a job may ask the user; `answer_input_request` has the answers."""
        from specchat.tui.screen_edit_ui import ScreenEditUI  # it imports slowly

        chat, edit_ui = self.conversation.chat, ScreenEditUI(self._worker_messages, cancelled)
        chat.ui, self._edit_ui = AgentUI(edit_ui.ask_consent, edit_ui.confirm, edit_ui.edit_ui.show_progress), edit_ui
        try:
            yield edit_ui
        finally:
            self._edit_ui = None

    def _handle_result(self, result: CommandResult, cancelled: Flag) -> None:
        """Show the text, send the request; then continue with `after_answer`, perhaps in another conversation."""
        while True:
            if result.text and not result.is_conversation:
                self._worker_messages.put(TranscriptNote(result.text))
            if request := result.request:
                self._ask(request, cancelled)
            if result.after_answer is None:
                return
            result = result.after_answer(self.conversation.chat)
            self.conversation.post()

    def run_file_command(self, line: str, cancelled: Flag) -> None:
        """Run a file command, which may ask the user."""
        from specchat.app.file_edits import run_file_command  # imported with the first edit

        try:
            with self._dialogue(cancelled) as edit_ui:
                finished = EditFinished(run_file_command(self.conversation.chat, line, edit_ui.edit_ui))
        except (CancelledError, DeclinedError) as reason:
            finished = EditFinished(str(reason))
        except ConnectionError:
            finished = EditFinished(f"{CONNECTION_LOST}; nothing is written", is_error=True)
        except Exception as error:  # noqa: BLE001 (the edge: the screen survives a failed edit)
            finished = EditFinished(_error_line(error), is_error=True)
        self._worker_messages.put(finished)
        self._worker_messages.put(AnswerEnded(is_stored=False))

    def replace_question(self, position: int, text: str, cancelled: Flag) -> None:
        """Send another text in place of the request at this position. The turns from there on stay as a version."""
        self._ask(Question(text), cancelled, position)

    def _ask(self, question: Question | Request, cancelled: Flag, position: int | None = None) -> None:
        is_stored = False
        try:
            if position is not None:
                self.conversation.rewind_to(position)
            chat = self.conversation.chat
            chat.wants_probabilities = self._wants_probabilities
            with self._dialogue(cancelled):
                for event in ask(chat, question, cancelled):
                    is_stored = (is_stored or isinstance(event, Asked)) and not _is_refused(event)
                    for message in _messages_of(event, is_stored):
                        self._worker_messages.put(message)
            self.conversation.post_first_name()
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
            self.conversation.post_versions()


def _messages_of(event: AskEvent, is_stored: bool) -> Iterator[WorkerMessage]:
    """What the screen is told of an event; each answer of the work with tools is a turn of its own."""
    match event:
        case Answered(notices=notices):
            yield from map(TranscriptNote, notices)
        case RoundStarted(request=request):
            yield AnswerEnded(is_stored)
            yield Asked(request)
        case _:
            yield event


def _error_line(error: Exception) -> str:
    return str(error) if isinstance(error, SpecchatError) else f"unexpected {type(error).__name__}: {error}"


def _is_refused(event: object) -> bool:
    return isinstance(event, Failed) and event.message.startswith("this is too much at once")
