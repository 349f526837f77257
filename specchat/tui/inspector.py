"""The inspector: an answer token by token, and what every step of it guessed. Beside the conversation or over it.

It shows what it is given; the screen brings the steps of a turn that is being written, or of one of before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from specchat.chat.events import StepDone
from specchat.chat.step_records import Inspection
from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.inspector_lines import charts, guess_lines, legend, shares, step_lines, sums
from specchat.tui.inspector_svg import as_svg
from specchat.tui.token_colours import TokenColours
from specchat.tui.token_view import TokenView

NO_RECORD = "nothing is known of the steps of this answer: it is older than the inspector, or it has not begun"
WIDEST_BESIDE = 120  # columns of the screen from which on there is room beside the conversation
PICTURE = "inspected"


class Inspector(Vertical):
    """One answer."""

    HELP = (
        "An answer by who guessed it: underlined guesses held, the bold are corrections. Left and right go from step "
        "to step, s shows where steps begin, d all guesses of a step, x writes a picture. Escape closes it."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "step before", priority=True, id="earlier_step"),
        Binding("right", "step(1)", "step after", priority=True, id="later_step"),
        Binding("home", "end(-1)", "first step", show=False, priority=True),
        Binding("end", "end(1)", "last step", show=False, priority=True),
        Binding("s", "toggle_bounds", "where steps begin", id="boundaries"),
        Binding("d", "toggle_drafts", "every guess", id="drafts"),
        Binding("x", "export", "picture", id="picture"),
        Binding("escape", "close", "close", id="close"),
    ]

    class Closed(Message):
        """Somebody has seen enough."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="inspector")
        self._glyphs = glyphs
        self._title, self._plain_seconds, self._memory = "", 0.0, ""
        self._steps: Sequence[StepDone] = ()
        self.inspection = Inspection()
        self._at = 0
        self._shows_drafts = False

    def compose(self) -> ComposeResult:
        """Legend and sums, tokens, the marked step."""
        yield Static("", id="inspector-head", markup=False)
        yield TokenView(self._glyphs)
        yield Static("", id="inspector-foot", markup=False)

    @property
    def tokens(self) -> TokenView:
        """The answer."""
        return self.query_one(TokenView)

    def show(self, title: str, steps: Sequence[StepDone], plain_seconds: float = 0.0) -> None:
        """These steps from their first one on; more may follow in the same list."""
        self._title, self._steps, self._plain_seconds = title, steps, plain_seconds
        self.inspection = Inspection(steps)
        self.tokens.show(self.inspection)
        self._mark(0)

    def follow(self, title: str, steps: Sequence[StepDone], plain_seconds: float, *, is_over: bool) -> None:
        """What has come since, if anything has; another list is another answer. While it grows its end is marked."""
        if steps is not self._steps:
            self.show(title, steps, plain_seconds)
            if not is_over:
                self.action_end(1)
            return
        known = self.inspection.steps
        if len(known) == len(steps) and plain_seconds == self._plain_seconds:
            return
        was_last, self._plain_seconds = self._at >= len(known) - 1, plain_seconds
        for step in steps[len(known) :]:
            self.inspection.add(step)
        self.tokens.grow()
        if was_last:
            self._mark(len(known) - 1, goes_there=False)
        self._say()

    def show_memory(self, line: str) -> None:
        """What the processes take."""
        if line != self._memory:
            self._memory = line
            self._say()

    def action_step(self, by: int) -> None:
        """To another step."""
        self._mark(self._at + by)

    def action_end(self, to: int) -> None:
        """To the first or the last."""
        self._mark(0 if to < 0 else len(self.inspection.steps) - 1)

    def action_toggle_bounds(self) -> None:
        """Where steps begin."""
        self.tokens.toggle_bounds()

    def action_toggle_drafts(self) -> None:
        """All guesses of the step."""
        self._shows_drafts = not self._shows_drafts
        self._say()

    def action_export(self) -> None:
        """Write a picture into this folder; nothing that is there is written over."""
        if not self.inspection.steps:
            self.notify("there is nothing to draw", markup=False)
            return
        picture = as_svg(self._title, self.inspection, self.app.theme_variables, self._plain_seconds)
        try:
            path = write_beside(Path.cwd(), picture)
        except OSError as error:
            self.notify(f"no picture: {error.strerror}", markup=False)
            return
        self.notify(f"the whole answer is in {path.name}", markup=False)

    def action_close(self) -> None:
        """Back to the conversation."""
        self.post_message(self.Closed())

    @on(TokenView.Pointed)
    def go_to(self, event: TokenView.Pointed) -> None:
        """To the step that was clicked."""
        self._mark(event.step)

    def notify_style_update(self) -> None:
        """Other colours."""
        super().notify_style_update()
        if self.is_mounted:
            self.call_after_refresh(self._say)

    def on_resize(self) -> None:
        """More or less room for charts."""
        self._say()

    def _mark(self, step: int, *, goes_there: bool = True) -> None:
        self._at = max(0, min(step, len(self.inspection.steps) - 1))
        self.tokens.mark(self._at, goes_there=goes_there)
        self._say()

    def _say(self) -> None:
        colours = TokenColours.of_theme(self.app.theme_variables)
        self.query_one("#inspector-head", Static).update(self._head(colours))
        self.query_one("#inspector-foot", Static).update(self._foot(colours))

    def _head(self, colours: TokenColours) -> Text:
        name = Text(f"inspect  {visible(self._title)}\n").append(legend(self.inspection, colours, self._glyphs))
        name.append(f"\n{sums(self.inspection, self._plain_seconds, self._glyphs) or NO_RECORD}")
        return name.append(f"\n{self._memory}" if self._memory else "", "dim")

    def _foot(self, colours: TokenColours) -> Text:
        if not self.inspection.steps:
            return Text("Esc back")
        step, glyphs = self.inspection.steps[self._at], self._glyphs
        foot = Text("\n".join([*step_lines(self.inspection, self._at, glyphs), ""]))
        if self._shows_drafts:
            foot.append("\n".join([*guess_lines(step, glyphs), ""]))
        foot.append(shares(self.inspection, colours, glyphs))
        foot.append(f"\n{charts(self.inspection, self._at, self.size.width - 2, glyphs)}\n")
        return foot.append(_keys(glyphs), "dim")


def _keys(glyphs: Glyphs) -> str:
    arrows = "Left/Right" if glyphs.ascii else "←/→"
    return f"{arrows} step  s bounds  d guesses  x picture  Esc back"


def write_beside(folder: Path, picture: str) -> Path:
    """The picture under the first name in this folder that is free."""
    for at in count(1):
        path = folder / f"{PICTURE}-{at}.svg"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(picture)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")
