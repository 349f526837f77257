"""What the model thought before an answer: one dimmed line with the time, and the text below it when it is unfolded."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from specchat.chat.turn_summary import thinking_text
from specchat.drawing.glyphs import Glyphs
from specchat.tui.streaming_answer import StreamingAnswer


class ThinkingHeader(Static):
    """A click folds and unfolds the text below."""

    def on_click(self) -> None:
        if isinstance(self.parent, ThinkingView):
            self.parent.toggle()


class ThinkingView(Vertical):
    """Hidden until there is a thought. The text is drawn only while it is unfolded."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._header = ThinkingHeader("", markup=False)
        self._header_line = ""
        self.text = ""
        self.is_unfolded = self._is_over = False
        self._seconds = 0.0
        self.display = False

    def compose(self) -> ComposeResult:
        yield self._header

    def append(self, text: str, seconds: float) -> None:
        """Add text of a thought that has lasted so long."""
        self.text += text
        self._seconds, self.display = seconds, True
        for body in self.query(StreamingAnswer):
            body.append_text(text)
        self._draw_header()

    def end(self, seconds: float) -> None:
        """The thought is over; `seconds` of 0 keeps what is shown."""
        self._seconds, self._is_over = seconds or self._seconds, True
        self._draw_header()

    def toggle(self) -> None:
        """Show the text, or hide it."""
        self.is_unfolded = not self.is_unfolded
        if self.is_unfolded:
            body = StreamingAnswer()
            self.mount(body)
            body.append_text(self.text)
        else:
            self.query(StreamingAnswer).remove()
        self._draw_header()

    def _draw_header(self) -> None:
        mark = self._glyphs.unfolded_mark if self.is_unfolded else self._glyphs.drafter_mark
        running = f"thinking{self._glyphs.ellipsis} {self._seconds:.0f} s"
        line = f"{mark} {(thinking_text(self._seconds) or 'thought') if self._is_over else running}"
        if line != self._header_line:
            self._header_line = line
            self._header.update(line)
