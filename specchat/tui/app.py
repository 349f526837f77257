"""The application: opens at once and without torch, then looks for the engine behind what is already on the screen."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import App, ScreenStackError, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.dom import NoScreen
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import MountError

from specchat.host.client import Wish
from specchat.tui.background_requests import Errands
from specchat.tui.chat_screen import ChatScreen
from specchat.tui.glyphs import UNICODE, Glyphs
from specchat.tui.inspector import Inspector
from specchat.tui.messages import Mailbox
from specchat.tui.preferences import USUAL, Preferences
from specchat.tui.screen_commands import LISTS, all_commands
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import Partner
from specchat.tui.themes import DAY, NIGHT
from specchat.tui.token_view import TokenView
from specchat.tui.turn_widget import TurnView

NOWHERE = (MountError, NoMatches, NoScreen, ScreenStackError)  # what drawing on a screen that is gone leads to

MOUSE_MODES = (1000, 1003, 1015, 1006)  # those that Textual asks a terminal for: clicks, moves, and how they are told


@dataclass(frozen=True)
class Places:
    """Files beside the history: the questions of before, and how the screen looks."""

    questions: Path
    look: Path

    @classmethod
    def beside(cls, history: Path) -> Places:
        """The usual ones."""
        return cls(history.with_name("questions"), history.with_name("screen.json"))


class SpecchatApp(App[None]):
    """specchat on a whole terminal."""

    TITLE = "specchat"
    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "leave", priority=True, id="leave"),
        Binding("f9", "toggle_mouse", "whose the mouse is", id="mouse"),
    ]

    def __init__(
        self,
        wish: Wish,
        places: Places,
        glyphs: Glyphs = UNICODE,
        preferences: Preferences = USUAL,
        greeting: str = "",
    ) -> None:
        super().__init__()
        self._greeting = greeting
        self._places, self._preferences = places, preferences
        self.has_mouse = preferences.has_mouse
        self.mailbox = Mailbox(self._tell_arrived)
        self.partner = Partner(wish, self.mailbox)
        self.errands = Errands(self.mailbox)
        self.chat = ChatScreen(self.partner, self.errands, self.mailbox, glyphs, places.questions)

    def on_mount(self) -> None:
        """Colours, and the one screen."""
        for theme in (NIGHT, DAY):
            self.register_theme(theme)
        chosen = _read_theme(self._places.look)
        self.theme = chosen if chosen in self.available_themes else NIGHT.name
        self.set_keymap(dict(self._preferences.keys))
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self.push_screen(self.chat)
        if self._greeting:
            self.notify(self._greeting, markup=False)

    def on_unmount(self) -> None:
        """Hang up; an answer that is being written ends, and what was said of it is kept."""
        self.chat.stop()
        self.partner.close()
        self.errands.close()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: what Textual offers, and every `/` command."""
        yield from super().get_system_commands(screen)
        for command in all_commands().values():
            yield SystemCommand(f"/{command.name}", command.help, self._runner(command.name, bool(command.arguments)))

    def action_toggle_mouse(self) -> None:
        """Leave the mouse to the terminal, so that it selects text there; or take it back."""
        self.has_mouse = not self.has_mouse
        if self._driver:
            self._driver.write("".join(f"\x1b[?{mode}{'h' if self.has_mouse else 'l'}" for mode in MOUSE_MODES))
            self._driver.flush()
        told = "the mouse works here again" if self.has_mouse else "the mouse is the terminal's: select text with it"
        self.notify(told, markup=False)

    def _runner(self, name: str, has_arguments: bool) -> Callable[[], None]:
        def run() -> None:
            if has_arguments and name not in LISTS:
                self.chat.prompt.write(f"/{name} ")
                self.chat.prompt.focus()
            else:
                self.chat.submit(f"/{name}")

        return run

    def _handle_exception(self, error: Exception) -> None:
        """Whatever was being drawn when the screen was taken away is drawn nowhere, and nobody needs to hear of it."""
        is_leaving = self._exit or not self.is_running
        if not (is_leaving and isinstance(error, NOWHERE)):
            super()._handle_exception(error)

    def _tell_arrived(self) -> None:
        """Called by other threads, perhaps after the end."""
        with contextlib.suppress(RuntimeError):
            self.chat.post_message(ChatScreen.Arrived())

    def _keep_theme(self, theme: Theme) -> None:
        try:
            self._places.look.write_text(json.dumps({"theme": theme.name}), encoding="utf-8")
        except OSError:
            return  # then it looks as before next time


def places_of_keys() -> list[list[BindingType]]:
    """The bindings that a key may reach together, for each place that it may be pressed in."""
    chat = [*SpecchatApp.BINDINGS, *ChatScreen.BINDINGS]
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
