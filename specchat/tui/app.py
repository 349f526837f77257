"""The Textual application. It opens at once and without torch, and connects to the host behind the first frame."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, ScreenStackError, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.dom import NoScreen
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import MountError

from specchat.drawing.glyphs import UNICODE, Glyphs
from specchat.drawing.themes import DARK_THEME, LIGHT_THEME
from specchat.host.client import SessionRequest
from specchat.own_text import translated
from specchat.tui.background_requests import BackgroundRequests
from specchat.tui.chat_screen import ChatScreen
from specchat.tui.conversation_layout import ConversationLayout
from specchat.tui.inspector import Inspector
from specchat.tui.keys_screen import KeysScreen, key_lines
from specchat.tui.preferences import AUTO_THEME, DEFAULT_PREFERENCES, Preferences, unknown_theme
from specchat.tui.screen_commands import COMMAND_ACTIONS, all_commands
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import SessionWorker
from specchat.tui.terminal_background import DARK_BACKGROUND, TerminalBackground
from specchat.tui.token_view import TokenView
from specchat.tui.turn_widget import TurnView
from specchat.tui.worker_messages import MessageQueue

SCREEN_GONE_ERRORS = MountError, NoMatches, NoScreen, ScreenStackError  # raised by drawing on a screen that has closed
MOUSE_MODES = (1000, 1003, 1015, 1006)  # the modes that Textual sets: clicks, moves, and their encodings


@dataclass(frozen=True)
class ScreenFiles:
    prompt_history: Path | None  # None: prompts are not stored
    theme: Path

    @classmethod
    def next_to(cls, history: Path) -> ScreenFiles:
        return cls(history.with_name("questions"), history.with_name("screen.json"))


class SpecchatApp(App[None]):
    TITLE = "specchat"
    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "quit", priority=True, id="quit"),
        Binding("f9", "toggle_mouse", "mouse: app or terminal", id="mouse"),
    ]

    def __init__(
        self,
        session_request: SessionRequest,
        files: ScreenFiles,
        glyphs: Glyphs = UNICODE,
        preferences: Preferences = DEFAULT_PREFERENCES,
        greeting: str = "",
        question: str = "",
        background: TerminalBackground = DARK_BACKGROUND,
    ) -> None:
        super().__init__()
        self._question, self._typed, self._follows_terminal = question, background.typed, False
        self._terminal_theme = (LIGHT_THEME if background.is_light else DARK_THEME).name
        self._files, self._preferences = files, preferences
        self.captures_mouse = preferences.captures_mouse
        self.worker_messages = MessageQueue(self._post_messages_arrived)
        self.session_worker = SessionWorker(session_request, self.worker_messages)
        self.background_requests = BackgroundRequests(self.worker_messages)
        self.chat_screen = ChatScreen(
            self.session_worker,
            self.background_requests,
            self.worker_messages,
            glyphs,
            preferences,
            files.prompt_history,
        )
        self.chat_screen.greeting = greeting

    def on_mount(self) -> None:
        for theme in (DARK_THEME, LIGHT_THEME):
            self.register_theme(theme)
        self._use_theme(self._preferences.theme or _read_theme(self._files.theme))
        self.set_keymap(dict(self._preferences.keys))
        self.theme_changed_signal.subscribe(self, self._save_theme)
        self.push_screen(self.chat_screen)
        if self._typed:
            self.call_after_refresh(self.chat_screen.type, self._typed)
        if self._question:
            if self.chat_screen.greeting:  # the welcome, which has it, is not seen
                self.notify(self.chat_screen.greeting, markup=False)
            self.call_after_refresh(self.chat_screen.submit, self._question)

    def on_unmount(self) -> None:
        """Disconnect; an answer in progress stops, and its partial text is stored."""
        self.chat_screen.stop_answer()
        self.session_worker.close()
        self.background_requests.close()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from (each for each in super().get_system_commands(screen) if each.title != "Keys")  # ours is /keys
        for command in all_commands().values():
            yield SystemCommand(
                f"/{command.name}", command.help, partial(self._run_command, command.name, bool(command.arguments))
            )

    async def action_quit(self) -> None:
        """Quit. The chat asks first while questions wait."""
        while self.screen is not self.chat_screen and len(self.screen_stack) > 1:
            await self.pop_screen()
        await self.chat_screen.leave()

    def notify(self, message: str, **options: Any) -> None:
        super().notify(translated(message), **options)

    def action_toggle_mouse(self) -> None:
        """Release the mouse to the terminal, which selects text with it, or capture it again."""
        self.captures_mouse = not self.captures_mouse
        if self._driver:
            self._driver.write("".join(f"\x1b[?{mode}{'h' if self.captures_mouse else 'l'}" for mode in MOUSE_MODES))
            self._driver.flush()
        released = "the terminal has the mouse: select text with it"
        self.notify("the mouse works here again" if self.captures_mouse else released, markup=False)

    def action_show_keys(self) -> None:
        bindings = dict.fromkeys(binding for scope in binding_scopes()[:2] for binding in scope)
        keys = self._preferences.keys
        page = KeysScreen(key_lines(bindings, keys), keys.get("help", "f1"), self.chat_screen.glyphs)
        self.push_screen(page, lambda typed: self.chat_screen.type(typed or ""))

    async def action_set_theme(self, name: str) -> None:
        if name == AUTO_THEME or name in self.available_themes:
            self._use_theme(name)
            self._save_theme(self.current_theme)
        else:
            await self.chat_screen.transcript.add_note(unknown_theme(name), is_error=True)

    def _run_command(self, name: str, has_arguments: bool) -> None:
        if has_arguments and name not in COMMAND_ACTIONS:
            self.chat_screen.prompt.set_text(f"/{name} ")
            self.chat_screen.prompt.focus()
        else:
            self.chat_screen.submit(f"/{name}")

    def _handle_exception(self, error: Exception) -> None:
        """Ignore errors of widgets that were drawing when the screen closed."""
        is_leaving = self._exit or not self.is_running
        if not (is_leaving and isinstance(error, SCREEN_GONE_ERRORS)):
            super()._handle_exception(error)

    def _post_messages_arrived(self) -> None:
        """Called by other threads, possibly after the app has closed."""
        with contextlib.suppress(RuntimeError):
            self.chat_screen.post_message(ChatScreen.MessagesArrived())

    def _use_theme(self, name: str) -> None:
        """Use this theme; without one, or with "auto", the one for the background of the terminal."""
        self._follows_terminal = name not in self.available_themes
        self.theme = self._terminal_theme if self._follows_terminal else name

    def _save_theme(self, theme: Theme) -> None:
        name = AUTO_THEME if self._follows_terminal and theme.name == self._terminal_theme else theme.name
        try:
            self._files.theme.write_text(json.dumps({"theme": name}), encoding="utf-8")
        except OSError:
            return  # the next start uses the earlier theme


def binding_scopes() -> list[list[BindingType]]:
    """The bindings that are active together, one list for each place of the focus."""
    chat = [*SpecchatApp.BINDINGS, *ConversationLayout.BINDINGS, *ChatScreen.BINDINGS]
    return [
        [*chat, *TurnView.BINDINGS],
        [*chat, *TokenView.BINDINGS, *Inspector.BINDINGS],
        [*SpecchatApp.BINDINGS, *SessionsScreen.BINDINGS],
    ]


def _read_theme(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["theme"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
