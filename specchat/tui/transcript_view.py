"""What was said, the newest below. Follows the answer until somebody scrolls away, and then draws nothing new.

Only the last turns of a long conversation are on the screen; more are brought in when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Static

from specchat.chat.history import StoredTurn
from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.turn_widget import QuestionRef, TurnView

FIRST_TURNS = 12
MORE_TURNS = 20
MAX_BLOCKS = 60
WELCOME = """Ask something below. The model guesses ahead to be quicker; the text is the same as without.

/help    everything that can be said      F1      every key
@file    a file, @folder/, @repo go too   Ctrl+R  earlier conversations
Esc      stops, the partial is kept       Ctrl+C  twice: leave; everything is kept"""


class Transcript(VerticalScroll, can_focus=False):
    """The blocks of a conversation."""

    HELP = "What was said. PageUp and PageDown scroll; Shift+Tab goes to the last answer."

    class ReachedEnd(Message):
        """Somebody scrolled back to the end."""

    class OlderRequested(Message):
        """Somebody wants to see more of a long conversation."""

    class OlderNotice(Static):
        """Says how much more there is; a click asks for it."""

        def on_click(self) -> None:
            """The screen brings them when nothing else is being drawn."""
            self.post_message(Transcript.OlderRequested())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="transcript")
        self._glyphs = glyphs
        self._hidden_turns: list[StoredTurn] = []
        self._questions: list[str] = []
        self._is_following = True

    def compose(self) -> ComposeResult:
        """Nothing yet but the place where the way to more will be."""
        yield Static(WELCOME, id="welcome", markup=False)
        yield self.OlderNotice("", id="older", markup=False)

    @property
    def is_following(self) -> bool:
        """Is the newest line in sight, and is it to stay so?"""
        return self._is_following

    @property
    def _is_at_end(self) -> bool:
        return self.scroll_y >= self.max_scroll_y - 1

    @property
    def turns(self) -> list[TurnView]:
        """The turns on the screen."""
        return list(self.query(TurnView))

    @property
    def question_refs(self) -> list[QuestionRef]:
        """Every question of the conversation, in order; also those that are not on the screen."""
        return [QuestionRef(question, position) for position, question in enumerate(self._questions)]

    def add_question(self, turn: TurnView) -> None:
        """This question becomes the last of the conversation."""
        turn.position = len(self._questions)
        self._questions.append(turn.question)
        self._mark_newest()

    def remove_question(self, turn: TurnView) -> None:
        """This one, the last, is no part of the conversation after all."""
        if turn.position is not None:
            del self._questions[turn.position :]
            turn.position = None
            self._mark_newest()

    def _mark_newest(self) -> None:
        for turn in self.turns:
            turn.set_newest(is_newest=turn.position is not None and turn.position == len(self._questions) - 1)

    async def show_turns(self, turns: Sequence[StoredTurn], waiting: TurnView | None = None) -> None:
        """Another conversation; a question that waits to be asked in it stays."""
        await self.remove_children([block for block in self.query("TurnView, .note") if block is not waiting])
        self._hidden_turns = list(turns[:-FIRST_TURNS])
        self._questions = [_question_of(stored) for stored in turns]
        await self._mount_stored(turns[-FIRST_TURNS:], len(self._hidden_turns), before=waiting)
        self._mark_newest()
        self._show_hidden_count()
        self.query_one("#welcome").display = not turns and waiting is None
        self.follow()

    async def show_older(self) -> None:
        """Bring in some of the turns before, and go there."""
        more, self._hidden_turns = self._hidden_turns[-MORE_TURNS:], self._hidden_turns[:-MORE_TURNS]
        first = self.turns[0] if self.turns else None
        await self._mount_stored(more, len(self._hidden_turns), before=first)
        self._show_hidden_count()
        self._is_following = False
        self.scroll_home(animate=False, immediate=True)

    async def start_turn(self, question: str, before: TurnView | None = None) -> TurnView:
        """A question that is being asked."""
        self.query_one("#welcome").display = False
        turn = TurnView(question, self._glyphs, None)
        await self.mount(turn, before=before)
        await self._remove_oldest_blocks()
        self.follow()
        return turn

    async def add_note(self, text: str, *, is_error: bool = False) -> None:
        """Words that are neither question nor answer."""
        self.query_one("#welcome").display = False
        await self.mount(Static(printable(text), classes="note -error" if is_error else "note", markup=False))
        self.follow()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._is_following = True
        self.call_after_refresh(self._scroll_if_following)

    def on_resize(self) -> None:
        """Another width: the end is elsewhere."""
        self.watch_virtual_size()

    def watch_virtual_size(self) -> None:
        """Something was added. Textual's own anchor would push what is shorter than the screen down."""
        if self._is_following:
            self.call_after_refresh(self._scroll_if_following)

    def _scroll_if_following(self) -> None:
        if self._is_following:
            self.scroll_end(animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up lets go of the end, reaching it again takes hold of it."""
        super().watch_scroll_y(old_value, new_value)
        self.call_after_refresh(self._update_following, self.size, is_up=new_value < old_value)

    def _update_following(self, size: Size, *, is_up: bool) -> None:
        """A place that changed because the screen did was chosen by nobody."""
        if self._is_at_end:
            if not self._is_following:
                self.post_message(self.ReachedEnd())
            self._is_following = True
        elif is_up and size == self.size:
            self._is_following = False

    async def _mount_stored(self, turns: Sequence[StoredTurn], first: int, before: TurnView | None = None) -> None:
        for number, stored in enumerate(turns, start=first):
            files = tuple(str(file.get("name", "")) for file in stored.request.get("files") or ())
            turn = TurnView(_question_of(stored), self._glyphs, number, files)
            await self.mount(turn, before=before)
            await turn.show_stored(stored)

    async def _remove_oldest_blocks(self) -> None:
        """Take the oldest blocks from the screen; they are in the history."""
        for block in list(self.query("TurnView, .note"))[:-MAX_BLOCKS]:
            await block.remove()

    def _show_hidden_count(self) -> None:
        older = self.query_one("#older", Static)
        older.display = bool(self._hidden_turns)
        count = len(self._hidden_turns)
        older.update(
            f"{self._glyphs.ellipsis} {count:,} earlier question{'' if count == 1 else 's'} (Ctrl+Home shows more)"
        )


def _question_of(stored: StoredTurn) -> str:
    return str(stored.request.get("text", ""))
