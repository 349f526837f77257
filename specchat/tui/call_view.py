"""A call of a tool below an answer: one line with its outcome, and the text of the outcome when it is unfolded."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from specchat.app.agent.agent_tool import ToolOutcome
from specchat.app.agent.call_lines import call_line, short
from specchat.drawing.glyphs import Glyphs, printable
from specchat.tui.streaming_answer import StreamingAnswer


class CallHeader(Static):
    """A click folds and unfolds the outcome below."""

    def on_click(self) -> None:
        if isinstance(self.parent, CallView):
            self.parent.toggle()


class CallView(Vertical):
    DEFAULT_CSS = "CallView { height: auto; color: $text-muted; padding: 0 0 0 2; } CallHeader { height: 1; }"

    def __init__(self, summary: str, glyphs: Glyphs, outcome: ToolOutcome | None = None) -> None:
        super().__init__()
        self._summary, self._glyphs, self.outcome = summary, glyphs, outcome
        self.is_unfolded = False
        self._header = CallHeader("", markup=False)

    def compose(self) -> ComposeResult:
        self._draw_header()
        yield self._header

    @property
    def line(self) -> str:
        mark = self._glyphs.unfolded_mark if self.is_unfolded else self._glyphs.drafter_mark
        if self.outcome is None:
            return f"{mark} {printable(short(self._summary))}{self._glyphs.ellipsis}"
        return f"{mark} {printable(call_line(self._summary, self.outcome))}"

    def end(self, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        self._draw_header()

    def toggle(self) -> None:
        """Show the text of the outcome, or hide it."""
        if self.outcome is None:
            return
        self.is_unfolded = not self.is_unfolded
        if self.is_unfolded:
            body = StreamingAnswer()
            self.mount(body)
            body.append_text(self.outcome.text)
        else:
            self.query(StreamingAnswer).remove()
        self._draw_header()

    def _draw_header(self) -> None:
        self._header.update(self.line)
