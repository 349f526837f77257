"""The transcript: turns and notes, the newest at the bottom. Follows the answer until the user scrolls up.

Of a long conversation, only the last turns are mounted; earlier turns are loaded on request.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import MouseScrollUp
from textual.geometry import Size
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Static

from specchat.app.agent.agent_tool import ToolOutcome
from specchat.app.welcome import welcome_text
from specchat.drawing.glyphs import Glyphs, printable
from specchat.history.history_reader import StoredTurn
from specchat.tui.diff_content import diff_content
from specchat.tui.own_label import OwnLabel
from specchat.tui.turn_widget import QuestionRef, TurnView
from specchat.tui.worker_messages import Versions

FIRST_TURNS = 12
MORE_TURNS = 20
MAX_BLOCKS = 60


class FollowingScroll(VerticalScroll, can_focus=False):
    """Scrolls with new text until the user scrolls up, and again when the end is reached."""

    is_following = True
    _beginning: Widget | None = None  # what is shown from its beginning as soon as it has a size

    def follow(self) -> None:
        self._reach_end()
        self.call_after_refresh(self._scroll_if_following)

    def on_resize(self) -> None:
        self.watch_virtual_size()

    def watch_virtual_size(self) -> None:
        """New content: scroll. Textual's own anchor would push short content to the bottom."""
        if self.is_following:
            self.call_after_refresh(self._scroll_if_following)
        if self._beginning:
            self.call_after_refresh(self.show_beginning, self._beginning)

    def _scroll_if_following(self) -> None:
        if self.is_following:
            self.scroll_end(animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up stops following; reaching the end resumes it."""
        super().watch_scroll_y(old_value, new_value)
        self.call_after_refresh(self._update_following, self.size, is_up=new_value < old_value)

    def _update_following(self, size: Size, *, is_up: bool) -> None:
        """Ignore a scroll position that changed because the size did."""
        if self.scroll_y >= self.max_scroll_y - 1:
            self._reach_end()
        elif is_up and size == self.size:
            self.is_following = False

    @on(MouseScrollUp)
    def leave_end(self) -> None:
        """The user scrolls up: text that comes before the next frame must not scroll back."""
        self.is_following = self.is_following and self.max_scroll_y <= 0

    def _reach_end(self) -> None:
        was_following, self.is_following = self.is_following, True
        if not was_following:
            self.call_later(self.on_end_reached)

    def show_beginning(self, block: Widget) -> None:
        """Of a block that is too tall for the screen, show the beginning, and stay there; else all of it."""
        self._beginning = None if block.size.width else block
        is_tall = block.size.height > self.size.height
        self.is_following = self.is_following and not is_tall
        if not self.is_following:
            self.scroll_to_widget(block, animate=False, immediate=True, top=is_tall)

    async def on_end_reached(self) -> None:
        """The user came back to the end."""


class Transcript(FollowingScroll, can_focus=False):
    def __init__(self, glyphs: Glyphs, notice: str = "") -> None:
        super().__init__(id="transcript")
        self._glyphs, self._notice = glyphs, notice
        self._hidden_turns: list[StoredTurn] = []
        self._questions: list[str] = []

    def compose(self) -> ComposeResult:
        yield OwnLabel("", id="welcome", markup=False)
        yield Static("", id="older-notice")

    def on_mount(self) -> None:
        self.show_welcome("")
        self._set_welcome(is_shown=True)

    def show_welcome(self, model: str) -> None:
        """What an empty conversation shows, with this model."""
        text, welcome = welcome_text(Path.cwd(), model, self._notice), self.query_one("#welcome", Static)
        welcome.update(self._glyphs.drawn(printable(text)))
        if welcome.display:
            self.call_after_refresh(self.show_beginning, welcome)

    def _set_welcome(self, *, is_shown: bool) -> None:
        self.query_one("#welcome").display = is_shown
        self.screen.set_class(is_shown, "-welcome")  # toasts are below it then

    @property
    def turns(self) -> list[TurnView]:
        """The mounted turns."""
        return list(self.query(TurnView))

    @property
    def question_refs(self) -> list[QuestionRef]:
        """Every request of the conversation, in order, mounted or not."""
        return [QuestionRef(question, position) for position, question in enumerate(self._questions)]

    def add_question(self, turn: TurnView) -> None:
        """Make this turn the last of the conversation."""
        turn.position = len(self._questions)
        self._questions.append(turn.question)
        self._mark_newest()

    def remove_question(self, turn: TurnView) -> None:
        """Remove this turn, the last one, from the conversation."""
        if turn.position is not None:
            del self._questions[turn.position :]
            turn.position = None
            self._mark_newest()

    def _mark_newest(self) -> None:
        for turn in self.turns:
            turn.set_newest(is_newest=turn.position is not None and turn.position == len(self._questions) - 1)

    def show_versions(self, versions: Versions) -> None:
        for turn in self.turns:
            if turn.position is not None and turn.position < len(versions):
                turn.show_version(*versions[turn.position])

    def select(self, position: int) -> None:
        """Select a turn, if it is mounted."""
        for turn in self.turns:
            if turn.position == position:
                self.is_following = False
                turn.focus()

    @property
    def unstored_turns(self) -> list[TurnView]:
        """Requests that never became part of the conversation, such as one that no engine received."""
        return [turn for turn in self.turns if turn.position is None and turn.is_finished]

    async def show_turns(
        self, turns: Sequence[StoredTurn], waiting: TurnView | None = None, kept: Sequence[TurnView] = ()
    ) -> None:
        """Show a conversation; `waiting`, whose answer is still to come, and `kept` stay below it."""
        staying = [*kept, *([waiting] if waiting else [])]
        await self.remove_children([block for block in self.query("TurnView, .note") if block not in staying])
        self._hidden_turns = list(turns[:-FIRST_TURNS])
        self._questions = [_question_of(stored) for stored in turns]
        first_staying = next((turn for turn in self.turns if turn in staying), None)
        await self._mount_stored(turns[-FIRST_TURNS:], len(self._hidden_turns), before=first_staying)
        self._mark_newest()
        self._show_hidden_count()
        self._set_welcome(is_shown=not turns and not staying)
        self.follow()

    async def show_older(self) -> None:
        more, self._hidden_turns = self._hidden_turns[-MORE_TURNS:], self._hidden_turns[:-MORE_TURNS]
        first = self.turns[0] if self.turns else None
        await self._mount_stored(more, len(self._hidden_turns), before=first)
        self._show_hidden_count()
        self.is_following = False
        self.scroll_home(animate=False, immediate=True)

    async def start_turn(self, question: str, before: TurnView | None = None) -> TurnView:
        self._set_welcome(is_shown=False)
        turn = TurnView(question, self._glyphs, None)
        await self.mount(turn, before=before)
        for block in list(self.query("TurnView, .note"))[:-MAX_BLOCKS]:  # the history keeps them
            await block.remove()
        self.follow()
        return turn

    async def add_note(self, text: str, *, is_error: bool = False) -> None:
        self._set_welcome(is_shown=False)
        note = OwnLabel(printable(text), classes="note -error" if is_error else "note", markup=False)
        await self.mount(note)
        self.follow()
        self.call_after_refresh(self.show_beginning, note)

    async def add_diff(self, diff: str) -> None:
        """A diff below its title, which begins with the name of the file."""
        title, _, lines = diff.partition("\n")
        await self.add_note(title)
        await self.mount(Static(diff_content(title.partition(":")[0], lines), classes="diff"))
        self.follow()

    async def on_end_reached(self) -> None:
        """The end is in view again: Markdown moves no line that is being read."""
        for turn in self.turns:
            if turn.is_finished:
                await turn.finalize()

    async def _mount_stored(self, turns: Sequence[StoredTurn], first: int, before: TurnView | None = None) -> None:
        outcomes = _outcomes_of(turns)
        for number, stored in enumerate(turns, start=first):
            files = tuple(str(file.get("name", "")) for file in stored.request.get("files") or ())
            turn = TurnView(_question_of(stored), self._glyphs, number, files)
            await self.mount(turn, before=before)
            await turn.show_stored(stored, outcomes)

    def _show_hidden_count(self) -> None:
        older = self.query_one("#older-notice", Static)
        older.display = bool(self._hidden_turns)
        count = len(self._hidden_turns)
        text = f"{self._glyphs.ellipsis} {count:,} earlier turn{'' if count == 1 else 's'} (Ctrl+Home shows more)"
        older.update(Content.styled(text, Style.from_meta({"@click": "screen.show_older"})))


def _outcomes_of(turns: Sequence[StoredTurn]) -> Mapping[str, ToolOutcome]:
    """The outcomes of calls, by their ids: each is in the request after the call."""
    results = (result for turn in turns for result in turn.request.get("tool_results") or ())
    return {
        str(each.get("call_id")): ToolOutcome(str(each.get("text", "")), bool(each.get("is_error"))) for each in results
    }


def _question_of(stored: StoredTurn) -> str:
    return str(stored.request.get("text", ""))
