"""The prompts of a screen that are not sent yet, and the request that the next one replaces. Knows no widget."""

from collections.abc import Sequence
from time import monotonic

from specchat.drawing.glyphs import printable
from specchat.tui.turn_widget import QuestionRef

DOUBLE_PRESS_SECONDS = 2.0  # within which a key counts as pressed twice


class PendingPrompts:
    """Prompts behind the answer in progress; the request that is being reworded; the one that a crash interrupted."""

    def __init__(self) -> None:
        self.reworded: QuestionRef | None = None
        self.crashed: QuestionRef | None = None  # while the user decides whether it is sent again
        self._queue, self._unsent_text = list[str](), ""

    @property
    def count(self) -> int:
        return len(self._queue)

    @property
    def notice(self) -> str:
        if self._queue:
            return f"next: {printable(' / '.join(self._queue))}"
        return "this becomes another version of an earlier request; Esc cancels" if self.reworded else ""

    def add(self, text: str) -> None:
        self._queue.append(text)

    def take_next(self) -> str | None:
        """None while a decision about a crash is open, too."""
        return self._queue.pop(0) if self._queue and self.crashed is None else None

    def take_all(self) -> Sequence[str]:
        taken, self._queue = self._queue, []
        return taken

    def reword(self, question: QuestionRef, unsent_text: str) -> None:
        """The next prompt replaces this request; the text of the prompt is kept until then."""
        if self.reworded is None:
            self._unsent_text = unsent_text
        self.reworded = question

    def end_rewording(self) -> str:
        """The text that the prompt had before."""
        text, self.reworded, self._unsent_text = self._unsent_text, None, ""
        return text


class DoublePress:
    """A key that does something when it is pressed twice in a short time."""

    def __init__(self) -> None:
        self._pressed_at = float("-inf")

    def press(self) -> bool:
        """Whether this is the second time."""
        last, self._pressed_at = self._pressed_at, monotonic()
        if is_second := self._pressed_at - last < DOUBLE_PRESS_SECONDS:
            self.forget()
        return is_second

    def forget(self) -> None:
        self._pressed_at = float("-inf")
