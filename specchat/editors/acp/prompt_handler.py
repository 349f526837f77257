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
from specchat.commands.registry import Talk
from specchat.editors.acp import stored_sessions
from specchat.editors.acp.client_requests import Editor, Turn
from specchat.editors.acp.edit_intent import Wanted, wanted_by_command, wanted_by_words
from specchat.editors.acp.edit_log import RememberedEdit, Told, remember, remembered
from specchat.editors.acp.prompt_blocks import Prompt, with_files
from specchat.editors.acp.prompt_turn import Telling, answer, title
from specchat.editors.acp.session_config import ASK, AUTO, Settings
from specchat.editors.acp.session_config import EDIT as MAY_EDIT
from specchat.editors.acp.slash_commands import (
    ATTACHED,
    EDIT,
    FIX,
    HELP,
    MISTAKES,
    QUESTIONS,
    help_text,
    offered,
    split_command,
)
from specchat.editors.acp.updates import ended, thought
from specchat.editors.acp.workspace_roots import Places
from specchat.errors import CancelledError, ContextError, HostError, SpecchatError, UsageError
from specchat.host.client import Wish
from specchat.profile import load_profile

if TYPE_CHECKING:
    from specchat.editors.acp.file_edit import Editing

log = logging.getLogger(__name__)

CLIENT = "acp"
LETTERS_OF_TOKEN = 24  # no tokenizer puts more into one, on average over a long text


class Talking:
    """A conversation with the engine, and what its user has chosen."""

    def __init__(self, talk: Talk, wish: Wish, places: Places, editor: Editor, unused_servers: Sequence[str]) -> None:
        self.places, self.editor, self.conversation = places, editor, talk.conversation
        self.settings = Settings(talk.conversation.profile)
        self._talk, self._wish, self._unused_servers = talk, wish, unused_servers
        self._is_named = bool(talk.conversation.name)

    def configure(self) -> None:
        """Tell the engine what was chosen. What it refuses shows with the next question."""
        self._talk.options = replace(self._talk.options, variant=self.settings.variant)
        conversation = self.conversation
        if self.settings.profile == conversation.profile:
            return
        try:
            conversation.call("set", {"profile": Wish(profile=self.settings.profile).params()["profile"]})
            conversation.profile = self.settings.profile
        except (SpecchatError, ConnectionError):
            log.warning("the profile could not be changed", exc_info=True)

    def told(self) -> Sequence[Told]:
        """What was said and edited so far, as it would have been heard."""
        return [*stored_sessions.replayed(self.conversation.turns(), remembered(self.conversation.session))]

    def outcome(self, prompt: Prompt, turn: Turn) -> PromptResponse | Exception:
        """The answer to a prompt. Only an engine that is out of reach, and a fault of ours, are errors."""
        telling = Telling(self.editor, turn)
        try:
            self._introduce(telling)
            return self._answered(prompt, telling)
        except CancelledError:
            return ended("cancelled")
        except HostError as error:
            return RequestError.internal_error({"details": str(error)})
        except ConnectionError:
            return RequestError.internal_error({"details": "the engine process hung up; ask again"})
        except (SpecchatError, OSError) as error:
            if turn.cancelled.is_set():
                return ended("cancelled")
            telling.say(f"specchat: {error}{self._way_out(error)}")
            return ended("end_turn")
        except Exception as error:  # the edge: no prompt may end the process
            log.exception("a prompt failed")
            return RequestError.internal_error({"details": f"unexpected {type(error).__name__}; see the log"})

    def _way_out(self, error: Exception) -> str:
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

    def _introduce(self, telling: Telling) -> None:
        """Say once what the editor gave us in vain."""
        if self._unused_servers:
            names, self._unused_servers = ", ".join(self._unused_servers), ()
            telling.tell(thought(f"MCP servers are not used yet: {names}\n"))

    def _answered(self, prompt: Prompt, telling: Telling) -> PromptResponse:
        command = split_command(prompt.text)
        if command:
            return self._commanded(*command, prompt, telling)
        wanted = wanted_by_words(prompt.text, prompt.linked, self.places) if self.settings.mode != ASK else None
        if wanted:
            return self._edited(wanted, prompt.text, telling)
        return self._asked(self._request(prompt, telling), telling)

    def _commanded(self, name: str, argument: str, prompt: Prompt, telling: Telling) -> PromptResponse:
        if name == EDIT:
            return self._edited(wanted_by_command(argument, self.places), prompt.text, telling)
        if name == FIX:
            return self._edited(wanted_by_command(f"{argument} {MISTAKES}", self.places), prompt.text, telling)
        if name in QUESTIONS:
            question = QUESTIONS[name].format(argument or ATTACHED)
            return self._asked(self._request(replace(prompt, text=question), telling), telling)
        if name == HELP:
            telling.say(help_text())
            return ended("end_turn")
        if name in ("profile", "variant") and argument:
            self.settings.with_choice(name, argument)  # a mistake is told before anything changes
        reply = offered()[name].run(self._talk, argument)
        if reply.ask:
            return self._asked(reply.ask, telling)
        telling.say(reply.text)
        self._after_command(name, argument, telling)
        return ended("end_turn")

    def _after_command(self, name: str, argument: str, telling: Telling) -> None:
        """What a command changed that the editor shows elsewhere."""
        if name == "rename":
            telling.tell(title(argument))
        if name in ("profile", "variant"):
            variant, profile = self._talk.options.variant, self.conversation.profile
            self.settings = replace(self.settings, variant=variant, profile=profile)
            telling.tell(*self.settings.updates())

    def _edited(self, wanted: Wanted, asked: str, telling: Telling) -> PromptResponse:
        if self.settings.mode == ASK:
            raise UsageError(f"in mode '{ASK}' no file is touched; choose the mode '{MAY_EDIT}'")
        from specchat.editors.acp.file_edit import Editing, Terms  # grammars and all; most sessions edit nothing

        wish = replace(self._wish, session="", profile="edit", kind="edit")
        window = load_profile(wish.profile).limits.context
        editing = Editing(wanted, Terms(self.places, wish, window, self.settings.mode != AUTO), telling)
        try:
            return editing.run()
        except SpecchatError as error:
            editing.said = f"specchat: {error}"
            raise
        finally:
            self._remember(asked, editing, telling)
            if editing.says_always:
                self.settings = replace(self.settings, mode=AUTO)
                telling.tell(*self.settings.updates())

    def _remember(self, asked: str, editing: Editing, telling: Telling) -> None:
        """Keep an edit for when this conversation is told again. If that fails, it was made all the same."""
        offer = editing.offer
        shown = offer.model_dump(mode="json", by_alias=True, exclude_none=True) if offer else None
        try:
            turns = self.conversation.turns()
            if not turns:
                self.conversation.call("keep", {"name": asked})
            last = turns[-1].id if turns else ""
            remember(self.conversation.session, RememberedEdit(last, asked, editing.said, shown))
            self._tell_name(telling)
        except (SpecchatError, ConnectionError):
            log.warning("an edit will not be told again", exc_info=True)

    def _request(self, prompt: Prompt, telling: Telling) -> Request:
        """The question with its files; what of them was left out is told."""
        whole = with_files(prompt, self.places, self._window, lambda path: self.editor.read(telling.turn, path))
        if whole.notes:
            telling.tell(thought("\n".join(whole.notes) + "\n"))
        options = self._talk.options
        request = Request(
            whole.text, whole.attached, variant=options.variant, temperature=options.temperature, seed=options.seed,
            structure=whole.structure,
        )  # fmt: skip
        _check_length(request, self._window)
        return request

    @property
    def _window(self) -> int:
        return load_profile(self.conversation.profile).limits.context

    def _asked(self, request: Request, telling: Telling) -> PromptResponse:
        conversation = self.conversation
        response = answer(self._heard(conversation.ask(request, telling.turn.cancelled)), telling, self._window)
        self._tell_name(telling)
        return response

    def _tell_name(self, telling: Telling) -> None:
        """What the conversation is called since its first question."""
        if not self._is_named:
            self._is_named = True
            telling.tell(title(str(self.conversation.call("subscribe")["name"])))

    def _heard(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self._talk.hear(event)
            yield event


def _check_length(request: Request, window: int) -> None:
    """ContextError for what cannot possibly fit: not even a tokenizer needs to look at it."""
    letters = len(request.text) + sum(len(file.text) for file in request.files)
    if letters // LETTERS_OF_TOKEN > window:
        least = letters // LETTERS_OF_TOKEN
        raise ContextError(f"this prompt has at least {least} tokens and the window holds {window}; send less")
