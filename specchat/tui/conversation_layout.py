"""What a conversation looks like, and how the focus moves in it: transcript, inspector, prompt and status line.

It sends nothing and decides nothing: `ChatScreen` does.
"""

from typing import ClassVar

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Key, Paste
from textual.screen import Screen
from textual.widgets import OptionList, Static

from specchat.drawing.glyphs import Glyphs
from specchat.own_text import translated
from specchat.tui.bottom_area import BottomArea, CompletionList
from specchat.tui.inspector import MIN_SIDE_BY_SIDE_COLUMNS
from specchat.tui.keys_screen import selection_keys
from specchat.tui.own_label import OwnLabel
from specchat.tui.preferences import Preferences
from specchat.tui.prompt_input import PromptBox
from specchat.tui.status_bar import StatusBar
from specchat.tui.token_view import TokenView
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import TurnView

SHORT_SCREEN_LINES, TALL_SCREEN_LINES, NARROW_SCREEN_COLUMNS = 12, 20, 59
PROMPT_HINT = "Enter sends, Ctrl+J new line, @ file, / command"


class ConversationLayout(Screen[None]):
    """A screen of one conversation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("shift+tab", "select_turn(-1)", "select an answer, to copy or edit", id="select"),
        Binding("f7", "toggle_numbers", "other numbers in the last line", id="numbers", priority=True),
        Binding("tab", "switch_focus", "inspector, prompt", show=False),
        Binding("pageup", "scroll(-1)", "scroll", show=False, priority=True),
        Binding("pagedown", "scroll(1)", "scroll", show=False, priority=True),
        Binding("ctrl+home", "show_older", "older", show=False, priority=True),
        Binding("ctrl+end", "follow", "newest", show=False, priority=True),
    ]

    bottom_area, transcript = getters.query_one(BottomArea), getters.query_one(Transcript)
    greeting = ""  # a line of the welcome

    def __init__(self, glyphs: Glyphs, preferences: Preferences) -> None:
        super().__init__()
        self.glyphs, self.preferences = glyphs, preferences

    def compose(self) -> ComposeResult:
        completion_list = CompletionList()
        with Horizontal(id="head"):
            yield Static("specchat", id="title", markup=False)
            yield Static("", id="about", markup=False)
            yield Static("F1 keys  ^P menu", id="head-keys", markup=False)
        yield Transcript(self.glyphs, self.greeting)
        yield OwnLabel("", id="queued", markup=False)
        yield BottomArea(self.glyphs, completion_list)
        yield OwnLabel("", id="selection", markup=False)
        yield StatusBar(self.glyphs)
        yield completion_list

    def on_mount(self) -> None:
        self.set_class(self.glyphs.is_ascii, "-ascii")
        self.prompt.placeholder = translated(PROMPT_HINT)
        self.prompt.focus()
        self.watch(self, "focused", self._show_selection_keys, init=False)

    def on_resize(self) -> None:
        """Hide on a short or narrow screen what is less needed; show the inspector beside the text on a wide one."""
        self.set_class(self.size.height < SHORT_SCREEN_LINES, "-short")
        self.set_class(self.size.height >= TALL_SCREEN_LINES, "-tall")
        self.set_class(self.size.width <= NARROW_SCREEN_COLUMNS, "-narrow")
        self.set_class(self.size.width >= MIN_SIDE_BY_SIDE_COLUMNS, "-beside")

    @property
    def prompt(self) -> PromptBox:
        return self.bottom_area.prompt

    def show_queued(self, notice: str) -> None:
        """The line above the prompt; none for ""."""
        line = self.query_one("#queued", Static)
        line.display = bool(notice)
        line.update(notice)

    def _show_selection_keys(self) -> None:
        """While an answer is selected, a line says which keys act on it."""
        line, turn = self.query_one("#selection", Static), self.focused
        line.display = isinstance(turn, TurnView)
        if isinstance(turn, TurnView):
            keys, turns = selection_keys(self.preferences.keys), self.transcript.turns
            line.update(f"answer {turns.index(turn) + 1} of {len(turns)} is selected: {keys}  Esc back")

    @on(OptionList.OptionSelected, "#completions")
    def accept_clicked_completion(self) -> None:
        self.bottom_area.accept_completion(is_enter=False)
        self.prompt.focus()

    def action_select_turn(self, step: int) -> None:
        """Select an answer, the newest one first; after the last one, return to the prompt."""
        turns = self.transcript.turns
        if not turns or self.bottom_area.is_prompt_replaced:
            return
        current = turns.index(self.focused) if isinstance(self.focused, TurnView) else len(turns)
        target = max(current + step, 0)
        self.set_focus(turns[target] if target < len(turns) else self.prompt)  # at once: the next key is for it
        if target < len(turns):
            self.transcript.show_beginning(turns[target])

    def action_switch_focus(self) -> None:
        """Go from the prompt to the open inspector, and from anywhere else to the prompt."""
        views = self.query(TokenView)
        self.set_focus(views.first() if views and self.prompt.has_focus else self.prompt)

    def on_key(self, event: Key) -> None:
        """Letters always type: what no widget has bound goes to the prompt."""
        if event.is_printable and event.character and event.key not in self.active_bindings:
            event.stop()
            self.type(event.character)

    def on_paste(self, event: Paste) -> None:
        if not self.bottom_area.is_prompt_replaced:
            event.stop()
            self.set_focus(self.prompt)
            self.prompt.insert_pasted(event.text)

    def type(self, text: str) -> None:
        if text and not self.bottom_area.is_prompt_replaced:
            self.set_focus(self.prompt)
            self.prompt.insert(text)

    def action_scroll(self, direction: int) -> None:
        view = self.focused if isinstance(self.focused, TokenView) else self.transcript
        if view is self.transcript and direction < 0:
            self.transcript.leave_end()
        view.scroll_relative(y=direction * view.scrollable_content_region.height, animate=False, immediate=True)

    def action_toggle_numbers(self) -> None:
        """Show the short line of the status bar, or the other numbers."""
        bar = self.query_one(StatusBar)
        bar.is_detailed = not bar.is_detailed

    def action_show_older(self) -> None:
        self.call_later(self.transcript.show_older)

    def action_follow(self) -> None:
        self.transcript.follow()
