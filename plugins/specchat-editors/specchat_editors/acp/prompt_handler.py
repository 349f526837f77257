"""Runs one prompt: a question, a slash command or an edit. Runs on the thread of its session."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from acp import RequestError

from specchat.app import updates
from specchat.app.ask import ask
from specchat.app.command_registry import ChatState
from specchat.app.model_loading import pending_models
from specchat.app.question import Question
from specchat.chat.request import Attachment, Request
from specchat.edit.edit_intent import EditIntent, intent_from_command, intent_from_text
from specchat.errors import CancelledError, ContextError, HostError, SpecchatError, UsageError
from specchat.host.client import SessionRequest
from specchat.host.protocol import JsonObject
from specchat_editors.acp import stored_sessions
from specchat_editors.acp.agent_calls import ToolCallReporter
from specchat_editors.acp.client_requests import EditorClient, PromptTurn, prompt_response
from specchat_editors.acp.prompt_blocks import Prompt, editor_files, make_question
from specchat_editors.acp.session_config import (
    AGENT_OF_MODE,
    ASK_MODE,
    ATTACHED_CODE,
    AUTO_MODE,
    EDIT,
    EDIT_MODE,
    FIX,
    FIX_INSTRUCTION,
    HELP,
    QUESTION_TEMPLATES,
    READING_MODES,
    TOOL_MODES,
    SessionConfig,
    available_commands,
    help_text,
    parse_slash_command,
)
from specchat_editors.acp.stored_calls import log_calls, shown_calls
from specchat_editors.acp.stored_sessions import (
    LoggedEdit,
    attached_edits,
    log_edit,
    logged_edits,
)
from specchat_editors.acp.turn_reporter import TurnReporter, session_title, stream_answer

if TYPE_CHECKING:
    from specchat_editors.acp.file_edit import FileEdit

log = logging.getLogger(__name__)

CLIENT = "acp"


class PromptHandler:
    def __init__(
        self,
        chat: ChatState,
        session_request: SessionRequest,
        client: EditorClient,
        config: SessionConfig,
    ) -> None:
        self.workspace, self.client, self.conversation = chat.workspace, client, chat.conversation
        self.config = config
        self._chat, self._session_request = chat, session_request
        self._is_named = bool(chat.conversation.name)

    def apply_config(self) -> None:
        """Send the chosen options to the engine. If it refuses them, the next request reports the error."""
        if self.config.settings == self.conversation.settings:
            return
        try:
            session_info = self.conversation.use(self.config.settings)
            if not session_info.get("is_loaded", True):
                self.client.send_notice(self._loading_notice())
        except (SpecchatError, ConnectionError):
            log.warning("the settings could not be changed", exc_info=True)

    def _loading_notice(self) -> str:
        """What has to be loaded for the chosen options, with sizes."""
        models = self.config.settings.profile.models
        if models.is_on_server:
            return f"The next answer comes from the server at {models.url}."
        loads = pending_models(models)
        verb = "is" if len(loads) == 1 else "are"
        names = " and ".join(load.description for load in loads)
        return f"{names} {verb} loaded before the next answer; this can take a while."

    def replay(self) -> Sequence[JsonObject]:
        session, turns = self.conversation.session_id, self.conversation.turns()
        calls = shown_calls(session, turns, self.workspace)
        return [*stored_sessions.replay_updates(turns, logged_edits(session), calls)]

    def handle(self, prompt: Prompt, turn: PromptTurn) -> JsonObject | Exception:
        """The response to a prompt. Only an unreachable engine or an internal error is an error of the protocol."""
        reporter = TurnReporter(self.client, turn)
        try:
            return self._dispatch(prompt, reporter)
        except CancelledError:
            return prompt_response("cancelled")
        except HostError as error:
            return error
        except ConnectionError:
            return RequestError.internal_error({"details": "the engine process disconnected; send the prompt again"})
        except (SpecchatError, OSError) as error:
            if turn.cancelled.is_set():
                return prompt_response("cancelled")
            reporter.send_text(f"specchat: {error}{self._context_hint(error)}")
            return prompt_response("end_turn")
        except Exception as error:  # no prompt may end the process
            log.exception("a prompt failed")
            return RequestError.internal_error({"details": f"unexpected {type(error).__name__}; see the log"})

    def _context_hint(self, error: Exception) -> str:
        """A hint when the conversation, and not the last prompt alone, fills the context window."""
        if getattr(error, "exit_code", 0) != ContextError.exit_code:
            return ""
        count = sum(turn.state != "failed" for turn in self.conversation.turns())
        if not count:
            return ""
        return (
            f". The prompt also holds the {count} earlier question{'' if count == 1 else 's'} of this conversation: "
            "start a new session, or remove the last questions with `/undo`, this one first"
        )

    def _dispatch(self, prompt: Prompt, reporter: TurnReporter) -> JsonObject:
        command = parse_slash_command(prompt.text)
        if command:
            return self._run_command(*command, prompt, reporter)
        if self.config.mode not in (ASK_MODE, *TOOL_MODES) and (
            intent := intent_from_text(prompt.text, prompt.linked_paths, self.workspace)
        ):
            return self._run_edit(intent, prompt.text, reporter)
        return self._ask(prompt, reporter)

    def _run_command(self, name: str, argument: str, prompt: Prompt, reporter: TurnReporter) -> JsonObject:
        if name == EDIT:
            return self._run_edit(intent_from_command(argument, self.workspace), prompt.text, reporter)
        if name == FIX:
            intent = intent_from_command(f"{argument} {FIX_INSTRUCTION}", self.workspace)
            return self._run_edit(intent, prompt.text, reporter)
        if name in QUESTION_TEMPLATES:
            question = QUESTION_TEMPLATES[name].format(argument or ATTACHED_CODE)
            return self._ask(replace(prompt, text=question), reporter)
        if name == HELP:
            reporter.send_text(help_text())
            return prompt_response("end_turn")
        reply = available_commands()[name].run(self._chat, argument)
        if reply.request:
            return self._run_question(reply.request, reporter)
        reporter.send_text(reply.text)
        self._after_command(name, argument, reporter)
        return prompt_response("end_turn")

    def _after_command(self, name: str, argument: str, reporter: TurnReporter) -> None:
        if name == "rename":
            reporter.send(session_title(argument))
        if self.config.settings != self.conversation.settings:
            self.config = replace(self.config, settings=self.conversation.settings)
            reporter.send(*self.config.updates())

    def _run_edit(self, intent: EditIntent, prompt_text: str, reporter: TurnReporter) -> JsonObject:
        if self.config.mode in READING_MODES:
            raise UsageError(f"in mode '{self.config.mode}' no file is changed; choose the mode '{EDIT_MODE}'")
        # imports the grammars, which most sessions do not need
        from specchat.app.edit_session import edit_request
        from specchat_editors.acp.file_edit import FileEdit, FileEditSettings

        request = edit_request(replace(self._session_request, settings=self.conversation.settings))
        settings = FileEditSettings(self.workspace, request, self.config.mode != AUTO_MODE)
        file_edit = FileEdit(intent, settings, reporter)
        try:
            return file_edit.run()
        except SpecchatError as error:
            file_edit.call.message = f"specchat: {error}"
            raise
        finally:
            self._log_edit(prompt_text, file_edit, reporter)
            if file_edit.allows_always:
                self.config = replace(self.config, mode=AUTO_MODE)
                reporter.send(*self.config.updates())

    def _log_edit(self, prompt_text: str, file_edit: FileEdit, reporter: TurnReporter) -> None:
        """Store the edit for the replay. A failure here does not affect the edit."""
        call = file_edit.call
        try:
            turns = self.conversation.turns()
            if not turns:
                self.conversation.call("store_session", {"name": prompt_text})
            last = turns[-1].id if turns else ""
            log_edit(self.conversation.session_id, LoggedEdit(last, prompt_text, call.message, call.call))
            self._send_title(reporter)
        except (SpecchatError, ConnectionError):
            log.warning("an edit is missing in the log", exc_info=True)

    def _ask(self, prompt: Prompt, reporter: TurnReporter) -> JsonObject:
        """Ask with the files of the prompt; what could not be read is reported."""
        access = editor_files(self.workspace, partial(self.client.read_file, reporter.turn))
        question, notices = make_question(prompt, self._edits_since_last_turn(), access)
        if notices:
            reporter.send(updates.chunk(updates.THOUGHT_CHUNK, "\n".join(notices) + "\n"))
        self._chat.access = access
        return self._run_question(question, reporter)

    def _edits_since_last_turn(self) -> list[Attachment]:
        """The edits that the conversation does not hold yet."""
        edits = logged_edits(self.conversation.session_id)
        turns = self.conversation.turns() if edits else ()
        max_characters = self.conversation.window_tokens  # about a third of the window
        return attached_edits(edits, turns[-1].id if turns else "", max_characters)

    def _run_question(self, question: Question | Request, reporter: TurnReporter) -> JsonObject:
        calls = ToolCallReporter(reporter, self.workspace)
        self._chat.ui, self._chat.agent_mode = calls.ui, AGENT_OF_MODE.get(self.config.mode, "")
        events = ask(self._chat, question, reporter.turn.cancelled)
        try:
            response = stream_answer(events, reporter, self.conversation.window_tokens, calls.on_event)
        finally:
            log_calls(self.conversation.session_id, calls.shown.values())
        self._send_title(reporter)
        if reporter.turn.cancelled.is_set():  # also where it was cancelled between two answers
            response["stopReason"] = "cancelled"
        return response

    def _send_title(self, reporter: TurnReporter) -> None:
        if not self._is_named:
            self._is_named = True
            reporter.send(session_title(str(self.conversation.call("session_info")["name"])))
