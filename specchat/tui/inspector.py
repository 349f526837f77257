"""The inspector: an answer token by token, and the draft tokens of each step. Beside the conversation, or over it.

`Inspector` shows the steps that it is given; `InspectorController` brings them, live or from the history.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual import getters, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Static

from specchat.chat.events import Speedup, StepDone
from specchat.chat.step_records import Inspection
from specchat.drawing.glyphs import Glyphs, printable
from specchat.drawing.inspector_lines import (
    charts,
    draft_lines,
    legend,
    probability_lines,
    source_shares,
    step_lines,
    totals_line,
)
from specchat.drawing.themes import TokenColours
from specchat.errors import SpecchatError
from specchat.history.step_encoding import unpack_steps
from specchat.tui.background_requests import BackgroundRequests, Json
from specchat.tui.conversation_presenter import ConversationPresenter
from specchat.tui.prompt_input import PromptBox
from specchat.tui.token_view import TokenView
from specchat.tui.transcript_view import Transcript

NO_STEPS_NOTICE = "no steps are recorded for this answer: a server or an older version wrote it, or it has not begun"
NO_PROBABILITIES_NOTICE = "no probabilities; ask while this is open to see them"
MAX_TITLE_CHARS = 40
MIN_SIDE_BY_SIDE_COLUMNS = 120  # narrower screens show it over the conversation


class Inspector(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "previous step", priority=True, id="earlier_step"),
        Binding("right", "step(1)", "next step", priority=True, id="later_step"),
        Binding("home", "end(-1)", "first step", show=False, priority=True),
        Binding("end", "end(1)", "last step", show=False, priority=True),
        Binding("s", "toggle_boundaries", "step boundaries", id="boundaries"),
        Binding("d", "toggle_drafts", "all draft tokens", id="drafts"),
        Binding("escape", "screen.inspect", "close", id="close"),
    ]
    token_view = getters.query_one(TokenView)

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="inspector")
        self._glyphs = glyphs
        self._title = ""
        self._speedup: Speedup | None = None
        self._steps: Sequence[StepDone] = ()
        self.inspection = Inspection()
        self._step_index = 0
        self._shows_drafts = False

    def compose(self) -> ComposeResult:
        yield Static("", id="inspector-head", markup=False)
        yield TokenView(self._glyphs)
        yield Static("", id="inspector-foot", markup=False)

    def show_steps(self, title: str, steps: Sequence[StepDone], speedup: Speedup | None = None) -> None:
        """Show these steps from the first on; the same list may grow later."""
        self._title, self._steps, self._speedup = title, steps, speedup
        self.inspection = Inspection(steps)
        self.token_view.show_inspection(self.inspection)
        self._select_step(0)

    def update_steps(self, title: str, steps: Sequence[StepDone], speedup: Speedup | None, *, is_over: bool) -> None:
        """Show new steps. Another list is another answer. The end stays selected while the answer grows."""
        if steps is not self._steps:
            self.show_steps(title, steps, speedup)
            if not is_over:
                self.action_end(1)
            return
        shown = self.inspection.steps
        if len(shown) == len(steps) and speedup == self._speedup:
            return
        was_last, self._speedup = self._step_index >= len(shown) - 1, speedup
        for step in steps[len(shown) :]:
            self.inspection.add(step)
        self.token_view.show_new_tokens()
        if was_last:
            self._select_step(len(shown) - 1, should_scroll=False)
        self._redraw()

    def action_step(self, offset: int) -> None:
        self._select_step(self._step_index + offset)

    def action_end(self, direction: int) -> None:
        self._select_step(0 if direction < 0 else len(self.inspection.steps) - 1)

    def action_toggle_boundaries(self) -> None:
        self.token_view.toggle_boundaries()

    def action_toggle_drafts(self) -> None:
        self._shows_drafts = not self._shows_drafts
        self._redraw()

    @on(TokenView.StepClicked)
    def go_to_step(self, event: TokenView.StepClicked) -> None:
        self._select_step(event.step)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.call_after_refresh(self._redraw)

    def on_resize(self) -> None:
        self._redraw()

    def _select_step(self, step: int, *, should_scroll: bool = True) -> None:
        self._step_index = max(0, min(step, len(self.inspection.steps) - 1))
        self.token_view.select_step(self._step_index, should_scroll=should_scroll)
        self._redraw()

    def _redraw(self) -> None:
        if not self.is_attached:
            return  # it was closed before the next refresh
        colours = TokenColours.from_theme(self.app.theme_variables)
        self.query_one("#inspector-head", Static).update(self._header_content(colours))
        self.query_one("#inspector-foot", Static).update(self._footer_content(colours))

    def _header_content(self, colours: TokenColours) -> Text:
        content = Text(f"inspect  {printable(self._title)}\n").append(legend(self.inspection, colours, self._glyphs))
        return content.append(f"\n{totals_line(self.inspection, self._speedup, self._glyphs) or NO_STEPS_NOTICE}")

    def _footer_content(self, colours: TokenColours) -> Text:
        if not self.inspection.steps:
            return Text("Esc back")
        step, glyphs = self.inspection.steps[self._step_index], self._glyphs
        content = Text("\n".join([*step_lines(self.inspection, self._step_index, glyphs), ""]))
        if self._shows_drafts:
            content.append("\n".join([*draft_lines(step, glyphs), ""]))
        content.append("\n".join([*(probability_lines(step, glyphs) or [NO_PROBABILITIES_NOTICE]), ""]), "dim")
        content.append(source_shares(self.inspection, colours, glyphs))
        content.append(f"\n{charts(self.inspection, self._step_index, self.size.width - 2, glyphs)}\n")
        arrows = "Left/Right" if glyphs.is_ascii else "←/→"
        return content.append(f"{arrows} step  s bounds  d drafts  Esc back", "dim")


class InspectorController:
    """Which answer is shown: the newest one while it streams, or an earlier one, fetched from the host."""

    def __init__(
        self,
        screen: Screen[None],
        presenter: ConversationPresenter,
        background_requests: BackgroundRequests,
        glyphs: Glyphs,
        on_watch: Callable[[bool], None],
    ) -> None:
        """`on_watch` is called when the inspector opens and closes: probabilities are computed only in between."""
        self._screen, self._presenter = screen, presenter
        self._background_requests, self._glyphs = background_requests, glyphs
        self._on_watch, self._session_id = on_watch, ""
        self._is_newest = False

    @property
    def _inspector(self) -> Inspector | None:
        return next(iter(self._screen.query(Inspector)), None)

    @property
    def _questions(self) -> list[str]:
        return [question.text for question in self._screen.query_one(Transcript).question_refs]

    async def toggle(self) -> None:
        if self._inspector:
            await self.close()
        else:
            await self.open(len(self._questions) - 1)

    async def open(self, position: int) -> None:
        self._session_id = self._presenter.session_id
        self._on_watch(True)
        if self._inspector is None:
            await self._screen.mount(Inspector(self._glyphs))
        if inspector := self._inspector:
            inspector.token_view.focus()
        self._is_newest = position == len(self._questions) - 1
        if self._is_newest:
            self._show_newest()
        else:
            self._fetch_steps(position)

    async def close(self) -> None:
        self._on_watch(False)
        if inspector := self._inspector:
            await inspector.remove()
            self._screen.query_one(PromptBox).focus()

    async def refresh(self) -> None:
        """An answer has ended, or the conversation has changed."""
        if self._inspector is None:
            return
        if self._session_id != self._presenter.session_id:
            await self.close()
        elif self._is_newest:
            self._show_newest()

    def update(self) -> None:
        inspector, presenter = self._inspector, self._presenter
        if inspector and self._is_newest and presenter.steps:
            speedup = presenter.live_stats.snapshot(monotonic()).speedup
            inspector.update_steps(self._title(), presenter.steps, speedup, is_over=presenter.turn is None)

    def _show_fetched_steps(self, position: int, response: Json | SpecchatError) -> None:
        """Show the steps of an earlier turn, unless newer steps have come."""
        inspector = self._inspector
        if inspector is None or (self._is_newest and self._presenter.steps):
            return
        if isinstance(response, SpecchatError):
            self._screen.notify(str(response), markup=False)
            return
        steps = unpack_steps(b64decode(str(response["steps"])))
        inspector.show_steps(self._title(position), steps)

    def _show_newest(self) -> None:
        if self._presenter.steps:
            self.update()
        elif inspector := self._inspector:
            inspector.show_steps(self._title(), ())
            if last := len(self._questions):
                self._fetch_steps(last - 1)

    def _fetch_steps(self, number: int) -> None:
        params = {"session": self._presenter.session_id, "turn_index": number}
        self._background_requests.send("inspect", params, self._screen, partial(self._show_fetched_steps, number))

    def _title(self, number: int = -1) -> str:
        questions = self._questions
        if not questions:
            return "no requests yet"
        index = number % len(questions)
        return f"turn {index + 1}  {' '.join(questions[index].split())[:MAX_TITLE_CHARS]}"
