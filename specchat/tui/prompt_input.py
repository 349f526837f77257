"""Where a question is written: several lines, completion, and the questions of before.

Enter sends. Ctrl+J begins a new line on every terminal; so do Shift+Enter and Alt+Enter where the terminal tells them
apart, and a backslash before Enter. A paste never sends, and a long one stands as one word until it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from specchat.tui.glyphs import printable_with_tabs

NEWLINE_KEYS = frozenset({"ctrl+j", "shift+enter", "alt+enter", "newline"})
LONG_PASTE_LINES = 20
LONG_PASTE_CHARACTERS = 2000


class PromptBox(TextArea):
    """The question."""

    HELP = (
        "Enter sends, Ctrl+J begins a new line. `/` lists the commands, `@` completes files. Up and Down go through "
        "earlier questions, those that begin like what stands before the cursor."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send", show=False),
        Binding("ctrl+j", "new_line", "new line", show=False),
    ]

    @dataclass
    class Sent(Message):
        """A question or command is ready."""

        text: str

    @dataclass
    class CompletionAction(Message):
        """A key for the list of completions: up, down, take, close."""

        action: str

    class Edited(Message):
        """The text or the cursor changed: other completions, perhaps."""

    def __init__(self) -> None:
        super().__init__(
            id="prompt", soft_wrap=True, tab_behavior="focus", show_line_numbers=False, highlight_cursor_line=False,
            compact=True,
        )  # fmt: skip
        self.is_completing = False
        self._pastes: dict[str, str] = {}
        self._earlier_questions: Sequence[str] = ()
        self._question_index: int | None = None
        self._unsent_text = ""

    @property
    def expanded_text(self) -> str:
        """The text with every long paste in its place."""
        text = self.text
        for mark, paste in self._pastes.items():
            text = text.replace(mark, paste)
        return text

    @property
    def text_before_cursor(self) -> str:
        """The text up to the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    def set_earlier_questions(self, questions: Sequence[str]) -> None:
        """The questions of before, the newest last."""
        self._earlier_questions, self._question_index = questions, None

    def set_text(self, text: str) -> None:
        """Replace everything; the cursor goes to the end."""
        self.load_text("")
        self._pastes.clear()
        self.insert_pasted(text)

    def insert_pasted(self, text: str) -> None:
        """Insert at the cursor; a long text as one word that stands for it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines > LONG_PASTE_LINES or len(text) > LONG_PASTE_CHARACTERS:
            size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
            mark = f"[pasted {size}, {len(self._pastes) + 1}]"
            self._pastes[mark] = text
            text = mark
        self.insert(printable_with_tabs(text))

    def insert_completion(self, text: str, length: int) -> None:
        """Replace what stands before the cursor."""
        row, column = self.cursor_location
        self.replace(text, (row, column - length), (row, column))

    def clear_all(self) -> None:
        """Begin anew."""
        self.load_text("")
        self._pastes.clear()
        self._question_index = None

    async def _on_key(self, event: events.Key) -> None:
        if self._handle_completion_key(event.key) or self._handle_prompt_key(event.key):
            event.stop()
            event.prevent_default()
            return
        self._question_index = None
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_pasted(event.text)

    def on_text_area_changed(self) -> None:
        """Other completions, perhaps."""
        self.post_message(self.Edited())

    def action_send(self) -> None:
        """Send, unless a backslash or nothing stands there."""
        row, column = self.cursor_location
        if self.text_before_cursor.endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
        elif text := self.expanded_text.strip():
            self.post_message(self.Sent(text))

    def action_new_line(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def _handle_completion_key(self, key: str) -> bool:
        how = COMPLETION_KEYS.get(key) if self.is_completing else None
        if how:
            self.post_message(self.CompletionAction(how))
        return how is not None

    def _handle_prompt_key(self, key: str) -> bool:
        if key in NEWLINE_KEYS:
            self.action_new_line()
        elif key == "enter":
            self.action_send()
        elif key == "up" and self.cursor_location[0] == 0 and not self._is_below_first_row():
            return self._browse_questions(-1)
        elif key == "down" and self.cursor_at_last_line:
            return self._browse_questions(1)
        else:
            return False
        return True

    def _is_below_first_row(self) -> bool:
        """Is the cursor in a later row of a first line that was wrapped?"""
        return self.wrapped_document.location_to_offset(self.cursor_location).y > 0

    def _browse_questions(self, step: int) -> bool:
        """An earlier question, or a later one; of those that begin like the draft."""
        if self._question_index is None:
            if step > 0:
                return False
            self._question_index, self._unsent_text = len(self._earlier_questions), self.text
        places = (
            range(self._question_index - 1, -1, -1)
            if step < 0
            else range(self._question_index + 1, len(self._earlier_questions))
        )
        place = next((at for at in places if self._earlier_questions[at].startswith(self._unsent_text)), None)
        if place is None and step < 0:
            self._question_index = (
                None if self._question_index == len(self._earlier_questions) else self._question_index
            )
            return True
        draft, self._question_index = self._unsent_text, len(self._earlier_questions) if place is None else place
        self.set_text(draft if place is None else self._earlier_questions[place])
        if place is None:
            self._question_index = None
        return True


COMPLETION_KEYS = {"up": "up", "down": "down", "tab": "take", "enter": "enter", "escape": "close"}
