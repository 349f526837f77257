"""What a prompt means and what comes of it: a question, a command or an edit. Lives on the thread of its session."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from acp import RequestError
from acp.schema import PromptResponse

from specchat.chat.events import Event
from specchat.chat.request import Request
from specchat.commands.command_registry import ChatState
from specchat.edit.edit_intent import EditIntent, intent_from_command, intent_from_text
from specchat.edit.workspace_roots import WorkspaceRoots
from specchat.editors.acp import stored_sessions
from specchat.editors.acp.client_requests import EditorClient, PromptTurn
from specchat.editors.acp.edit_log import LoggedEdit, ReplayUpdate, log_edit, logged_edits
from specchat.editors.acp.prompt_blocks import Prompt, attach_linked_files
from specchat.editors.acp.session_config import ASK_MODE, AUTO_MODE, SessionConfig
from specchat.editors.acp.session_config import EDIT_MODE as MAY_EDIT
from specchat.editors.acp.session_updates import prompt_response, thought_chunk
from specchat.editors.acp.slash_commands import (
    ATTACHED_CODE,
    EDIT,
    FIX,
    FIX_INSTRUCTION,
    HELP,
    QUESTION_TEMPLATES,
    available_commands,
    help_text,
    parse_slash_command,
)
from specchat.editors.acp.turn_reporter import TurnReporter, session_title, stream_answer
from specchat.errors import CancelledError, ContextError, HostError, SpecchatError, UsageError
from specchat.host.client import SessionRequest
from specchat.profile import load_profile

if TYPE_CHECKING:
    from specchat.editors.acp.file_edit import FileEdit

log = logging.getLogger(__name__)

CLIENT = "acp"
MAX_CHARS_PER_TOKEN = 24  # no tokenizer puts more into one, on average over a long text


class PromptHandler:
    """A conversation with the engine, and what its user has chosen."""

    def __init__(
        self,
        talk: ChatState,
        session_request: SessionRequest,
        workspace: WorkspaceRoots,
        client: EditorClient,
        unused_mcp_servers: Sequence[str],
    ) -> None:
        self.workspace, self.client, self.conversation = workspace, client, talk.conversation
        self.config = SessionConfig(talk.conversation.profile)
        self._talk, self._session_request, self._unused_mcp_servers = talk, session_request, unused_mcp_servers
        self._is_named = bool(talk.conversation.name)

    def apply_config(self) -> None:
        """Tell the engine what was chosen. What it refuses shows with the next question."""
        self._talk.options = replace(self._talk.options, variant=self.config.variant)
        conversation = self.conversation
        if self.config.profile == conversation.profile:
            return
        try:
            conversation.call("set", {"profile": SessionRequest(profile=self.config.profile).to_params()["profile"]})
            conversation.profile = self.config.profile
        except (SpecchatError, ConnectionError):
            log.warning("the profile could not be changed", exc_info=True)

    def replay(self) -> Sequence[ReplayUpdate]:
        """What was said and edited so far, as it would have been heard."""
        return [*stored_sessions.replay_updates(self.conversation.turns(), logged_edits(self.conversation.session_id))]

    def handle(self, prompt: Prompt, turn: PromptTurn) -> PromptResponse | Exception:
        """The answer to a prompt. Only an engine that is out of reach, and a fault of ours, are errors."""
        telling = TurnReporter(self.client, turn)
        try:
            self._report_unused_servers(telling)
            return self._dispatch(prompt, telling)
        except CancelledError:
            return prompt_response("cancelled")
        except HostError as error:
            return RequestError.internal_error({"details": str(error)})
        except ConnectionError:
            return RequestError.internal_error({"details": "the engine process hung up; ask again"})
        except (SpecchatError, OSError) as error:
            if turn.cancelled.is_set():
                return prompt_response("cancelled")
            telling.send_text(f"specchat: {error}{self._context_hint(error)}")
            return prompt_response("end_turn")
        except Exception as error:  # the edge: no prompt may end the process
            log.exception("a prompt failed")
            return RequestError.internal_error({"details": f"unexpected {type(error).__name__}; see the log"})

    def _context_hint(self, error: Exception) -> str:
        """What can be done when a conversation, and not its last question alone, has filled the window."""
        if getattr(error, "exit_code", 0) != ContextError.exit_code:
            return ""
        count = sum(turn.state != "failed" for turn in self.conversation.turns())
        if not count:
            return ""
        return (
            f". It comes on top of {count} earlier question{'' if count == 1 else 's'}, all of which the model reads "
            "again: start a new session, or take back some of them with `/undo`, this one first"
        )

    def _report_unused_servers(self, telling: TurnReporter) -> None:
        """Say once what the editor gave us in vain."""
        if self._unused_mcp_servers:
            names, self._unused_mcp_servers = ", ".join(self._unused_mcp_servers), ()
            telling.send(thought_chunk(f"MCP servers are not used yet: {names}\n"))

    def _dispatch(self, prompt: Prompt, telling: TurnReporter) -> PromptResponse:
        command = parse_slash_command(prompt.text)
        if command:
            return self._run_command(*command, prompt, telling)
        wanted = (
            intent_from_text(prompt.text, prompt.linked_paths, self.workspace) if self.config.mode != ASK_MODE else None
        )
        if wanted:
            return self._run_edit(wanted, prompt.text, telling)
        return self._run_request(self._make_request(prompt, telling), telling)

    def _run_command(self, name: str, argument: str, prompt: Prompt, telling: TurnReporter) -> PromptResponse:
        if name == EDIT:
            return self._run_edit(intent_from_command(argument, self.workspace), prompt.text, telling)
        if name == FIX:
            return self._run_edit(
                intent_from_command(f"{argument} {FIX_INSTRUCTION}", self.workspace), prompt.text, telling
            )
        if name in QUESTION_TEMPLATES:
            question = QUESTION_TEMPLATES[name].format(argument or ATTACHED_CODE)
            return self._run_request(self._make_request(replace(prompt, text=question), telling), telling)
        if name == HELP:
            telling.send_text(help_text())
            return prompt_response("end_turn")
        if name in ("profile", "variant") and argument:
            self.config.with_option(name, argument)  # a mistake is told before anything changes
        reply = available_commands()[name].run(self._talk, argument)
        if reply.request:
            return self._run_request(reply.request, telling)
        telling.send_text(reply.text)
        self._after_command(name, argument, telling)
        return prompt_response("end_turn")

    def _after_command(self, name: str, argument: str, telling: TurnReporter) -> None:
        """What a command changed that the editor shows elsewhere."""
        if name == "rename":
            telling.send(session_title(argument))
        if name in ("profile", "variant"):
            variant, profile = self._talk.options.variant, self.conversation.profile
            self.config = replace(self.config, variant=variant, profile=profile)
            telling.send(*self.config.updates())

    def _run_edit(self, wanted: EditIntent, asked: str, telling: TurnReporter) -> PromptResponse:
        if self.config.mode == ASK_MODE:
            raise UsageError(f"in mode '{ASK_MODE}' no file is touched; choose the mode '{MAY_EDIT}'")
        from specchat.editors.acp.file_edit import (  # grammars and all; most sessions edit nothing
            FileEdit,
            FileEditSettings,
        )

        wish = replace(self._session_request, session="", profile="edit", kind="edit")
        window = load_profile(wish.profile).limits.context
        editing = FileEdit(
            wanted, FileEditSettings(self.workspace, wish, window, self.config.mode != AUTO_MODE), telling
        )
        try:
            return editing.run()
        except SpecchatError as error:
            editing.message = f"specchat: {error}"
            raise
        finally:
            self._log_edit(asked, editing, telling)
            if editing.allows_always:
                self.config = replace(self.config, mode=AUTO_MODE)
                telling.send(*self.config.updates())

    def _log_edit(self, asked: str, editing: FileEdit, telling: TurnReporter) -> None:
        """Keep an edit for when this conversation is told again. If that fails, it was made all the same."""
        offer = editing.tool_call
        shown = offer.model_dump(mode="json", by_alias=True, exclude_none=True) if offer else None
        try:
            turns = self.conversation.turns()
            if not turns:
                self.conversation.call("keep", {"name": asked})
            last = turns[-1].id if turns else ""
            log_edit(self.conversation.session_id, LoggedEdit(last, asked, editing.message, shown))
            self._send_title(telling)
        except (SpecchatError, ConnectionError):
            log.warning("an edit will not be told again", exc_info=True)

    def _make_request(self, prompt: Prompt, telling: TurnReporter) -> Request:
        """The question with its files; what of them was left out is told."""
        whole = attach_linked_files(
            prompt, self.workspace, self._window_tokens, lambda path: self.client.read_file(telling.turn, path)
        )
        if whole.notices:
            telling.send(thought_chunk("\n".join(whole.notices) + "\n"))
        options = self._talk.options
        request = Request(
            whole.text, whole.attachments, variant=options.variant, temperature=options.temperature, seed=options.seed,
            answer_format=whole.structure,
        )  # fmt: skip
        _check_length(request, self._window_tokens)
        return request

    @property
    def _window_tokens(self) -> int:
        return load_profile(self.conversation.profile).limits.context

    def _run_request(self, request: Request, telling: TurnReporter) -> PromptResponse:
        conversation = self.conversation
        response = stream_answer(
            self._forward_events(conversation.ask(request, telling.turn.cancelled)), telling, self._window_tokens
        )
        self._send_title(telling)
        return response

    def _send_title(self, telling: TurnReporter) -> None:
        """What the conversation is called since its first question."""
        if not self._is_named:
            self._is_named = True
            telling.send(session_title(str(self.conversation.call("subscribe")["name"])))

    def _forward_events(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self._talk.on_event(event)
            yield event


def _check_length(request: Request, window: int) -> None:
    """ContextError for what cannot possibly fit: not even a tokenizer needs to look at it."""
    letters = len(request.text) + sum(len(file.text) for file in request.files)
    if letters // MAX_CHARS_PER_TOKEN > window:
        least = letters // MAX_CHARS_PER_TOKEN
        raise ContextError(f"this prompt has at least {least} tokens and the window holds {window}; send less")
