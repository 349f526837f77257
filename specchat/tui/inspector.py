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
from specchat.tui.glyphs import Glyphs, printable
from specchat.tui.inspector_lines import charts, draft_lines, legend, source_shares, step_lines, totals_line
from specchat.tui.inspector_svg import render_svg
from specchat.tui.token_colours import TokenColours
from specchat.tui.token_view import TokenView

NO_STEPS_NOTICE = "nothing is known of the steps of this answer: it is older than the inspector, or it has not begun"
MIN_SIDE_BY_SIDE_COLUMNS = 120  # columns of the screen from which on there is room beside the conversation
SVG_NAME = "inspected"


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
        self._title, self._plain_step_seconds, self._memory = "", 0.0, ""
        self._steps: Sequence[StepDone] = ()
        self.inspection = Inspection()
        self._step_index = 0
        self._shows_drafts = False

    def compose(self) -> ComposeResult:
        """Legend and sums, tokens, the marked step."""
        yield Static("", id="inspector-head", markup=False)
        yield TokenView(self._glyphs)
        yield Static("", id="inspector-foot", markup=False)

    @property
    def token_view(self) -> TokenView:
        """The answer."""
        return self.query_one(TokenView)

    def show_steps(self, title: str, steps: Sequence[StepDone], plain_step_seconds: float = 0.0) -> None:
        """These steps from their first one on; more may follow in the same list."""
        self._title, self._steps, self._plain_step_seconds = title, steps, plain_step_seconds
        self.inspection = Inspection(steps)
        self.token_view.show_inspection(self.inspection)
        self._select_step(0)

    def update_steps(self, title: str, steps: Sequence[StepDone], plain_step_seconds: float, *, is_over: bool) -> None:
        """What has come since, if anything has; another list is another answer. While it grows its end is marked."""
        if steps is not self._steps:
            self.show_steps(title, steps, plain_step_seconds)
            if not is_over:
                self.action_end(1)
            return
        known = self.inspection.steps
        if len(known) == len(steps) and plain_step_seconds == self._plain_step_seconds:
            return
        was_last, self._plain_step_seconds = self._step_index >= len(known) - 1, plain_step_seconds
        for step in steps[len(known) :]:
            self.inspection.add(step)
        self.token_view.show_new_tokens()
        if was_last:
            self._select_step(len(known) - 1, goes_there=False)
        self._redraw()

    def show_memory(self, line: str) -> None:
        """What the processes take."""
        if line != self._memory:
            self._memory = line
            self._redraw()

    def action_step(self, offset: int) -> None:
        """To another step."""
        self._select_step(self._step_index + offset)

    def action_end(self, direction: int) -> None:
        """To the first or the last."""
        self._select_step(0 if direction < 0 else len(self.inspection.steps) - 1)

    def action_toggle_boundaries(self) -> None:
        """Where steps begin."""
        self.token_view.toggle_boundaries()

    def action_toggle_drafts(self) -> None:
        """All guesses of the step."""
        self._shows_drafts = not self._shows_drafts
        self._redraw()

    def action_export(self) -> None:
        """Write a picture into this folder; nothing that is there is written over."""
        if not self.inspection.steps:
            self.notify("there is nothing to draw", markup=False)
            return
        picture = render_svg(self._title, self.inspection, self.app.theme_variables, self._plain_step_seconds)
        try:
            path = write_numbered_svg(Path.cwd(), picture)
        except OSError as error:
            self.notify(f"no picture: {error.strerror}", markup=False)
            return
        self.notify(f"the whole answer is in {path.name}", markup=False)

    def action_close(self) -> None:
        """Back to the conversation."""
        self.post_message(self.Closed())

    @on(TokenView.StepClicked)
    def go_to_step(self, event: TokenView.StepClicked) -> None:
        """To the step that was clicked."""
        self._select_step(event.step)

    def notify_style_update(self) -> None:
        """Other colours."""
        super().notify_style_update()
        if self.is_mounted:
            self.call_after_refresh(self._redraw)

    def on_resize(self) -> None:
        """More or less room for charts."""
        self._redraw()

    def _select_step(self, step: int, *, goes_there: bool = True) -> None:
        self._step_index = max(0, min(step, len(self.inspection.steps) - 1))
        self.token_view.select_step(self._step_index, should_scroll=goes_there)
        self._redraw()

    def _redraw(self) -> None:
        colours = TokenColours.from_theme(self.app.theme_variables)
        self.query_one("#inspector-head", Static).update(self._header_content(colours))
        self.query_one("#inspector-foot", Static).update(self._footer_content(colours))

    def _header_content(self, colours: TokenColours) -> Text:
        name = Text(f"inspect  {printable(self._title)}\n").append(legend(self.inspection, colours, self._glyphs))
        name.append(f"\n{totals_line(self.inspection, self._plain_step_seconds, self._glyphs) or NO_STEPS_NOTICE}")
        return name.append(f"\n{self._memory}" if self._memory else "", "dim")

    def _footer_content(self, colours: TokenColours) -> Text:
        if not self.inspection.steps:
            return Text("Esc back")
        step, glyphs = self.inspection.steps[self._step_index], self._glyphs
        foot = Text("\n".join([*step_lines(self.inspection, self._step_index, glyphs), ""]))
        if self._shows_drafts:
            foot.append("\n".join([*draft_lines(step, glyphs), ""]))
        foot.append(source_shares(self.inspection, colours, glyphs))
        foot.append(f"\n{charts(self.inspection, self._step_index, self.size.width - 2, glyphs)}\n")
        return foot.append(_key_help(glyphs), "dim")


def _key_help(glyphs: Glyphs) -> str:
    arrows = "Left/Right" if glyphs.is_ascii else "←/→"
    return f"{arrows} step  s bounds  d guesses  x picture  Esc back"


def write_numbered_svg(folder: Path, svg: str) -> Path:
    """The picture under the first name in this folder that is free."""
    for at in count(1):
        path = folder / f"{SVG_NAME}-{at}.svg"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(svg)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")
