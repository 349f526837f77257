"""Texts beside an answer, folded into one line: what the model thought, and the outcome of a call of a tool."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from specchat.app.agent.agent_tool import ToolOutcome, call_line, short
from specchat.chat.turn_summary import thinking_text
from specchat.drawing.glyphs import Glyphs, printable
from specchat.tui.streaming_answer import StreamingAnswer


class FoldedText(Vertical):
    """A line, and the text below it when it is unfolded. The text is drawn only then."""

    DEFAULT_CSS = "FoldedText { height: auto; color: $text-muted; padding: 0 0 0 2; }"

    class Heading(Static):
        """A click folds and unfolds the text below."""

        DEFAULT_CSS = "Heading { width: auto; height: 1; }"

        def on_click(self) -> None:
            assert isinstance(self.parent, FoldedText)
            self.parent.toggle()

    def __init__(self, glyphs: Glyphs, title: str) -> None:
        super().__init__()
        self.glyphs, self.title, self.text = glyphs, title, ""
        self.is_unfolded = False
        self._heading = self.Heading(self.line, markup=False)

    def compose(self) -> ComposeResult:
        yield self._heading

    @property
    def line(self) -> str:
        return f"{self.glyphs.unfolded_mark if self.is_unfolded else self.glyphs.drafter_mark} {self.title}"

    def set_title(self, title: str) -> None:
        if title != self.title:
            self.title = title
            self._heading.update(self.line)

    def append(self, text: str) -> None:
        self.text += text
        for body in self.query(StreamingAnswer):
            body.append_text(text)

    def toggle(self) -> None:
        """Show the text, or hide it; without a text nothing happens."""
        if not self.text:
            return
        self.is_unfolded = not self.is_unfolded
        self._heading.update(self.line)
        if self.is_unfolded:
            body = StreamingAnswer(shows_fences=True)
            self.mount(body)
            body.append_text(self.text)
        else:
            self.query(StreamingAnswer).remove()


class ThinkingView(FoldedText):
    """What the model thought before its answer. Hidden until there is a thought."""

    DEFAULT_CSS = "ThinkingView { text-style: dim; margin: 0 0 1 0; display: none; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, "")
        self._seconds = 0.0

    def add(self, text: str, seconds: float) -> None:
        """Add text of a thought that has lasted so long."""
        self._seconds, self.display = seconds, True
        self.append(text)
        self.set_title(f"thinking{self.glyphs.ellipsis} {seconds:.0f} s")

    def end(self, seconds: float) -> None:
        """The thought is over; `seconds` of 0 keeps the time that is shown."""
        self.set_title(thinking_text(seconds or self._seconds) or "thought")


class CallView(FoldedText):
    """A call of a tool below an answer; its text is that of the outcome."""

    def __init__(self, summary: str, glyphs: Glyphs, outcome: ToolOutcome | None = None) -> None:
        super().__init__(glyphs, f"{printable(short(summary))}{glyphs.ellipsis}")
        self._summary, self.outcome = summary, outcome
        if outcome:
            self.end(outcome)

    def show_progress(self, line: str) -> None:
        self.set_title(printable(f"{short(self._summary)}: {short(line)}"))

    def end(self, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        self.append(outcome.text)
        self.set_title(printable(call_line(self._summary, outcome)))
