"""The prompt: a text area of several lines with completion and the history of earlier prompts.

Enter sends. Ctrl+J starts a new line on every terminal; so do Shift+Enter and Alt+Enter where the terminal reports
them, and a backslash before Enter. A paste never sends, and a long paste is shown as a placeholder until it is sent.

The line mode shares the file of the history: `# time`, then each line after a plus.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from specchat.drawing.glyphs import printable_with_tabs

NEWLINE_KEYS = frozenset({"ctrl+j", "shift+enter", "alt+enter", "newline"})
LONG_PASTE_LINES = 20
LONG_PASTE_CHARACTERS = 2000
MAX_QUESTIONS = 1000


class PromptBox(TextArea):
    @dataclass
    class Sent(Message):
        """A request or a command to submit."""

        text: str

    @dataclass
    class CompletionAction(Message):
        """A key for the completion list: up, down, accept, enter, close."""

        action: str

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
        text = self.text
        for placeholder, paste in self._pastes.items():
            text = text.replace(placeholder, paste)
        return text

    @property
    def text_before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def set_earlier_questions(self, questions: Sequence[str]) -> None:
        """Set the history, the newest entry last."""
        self._earlier_questions, self._question_index = questions, None

    def set_text(self, text: str) -> None:
        self.load_text("")
        self._pastes.clear()
        self.insert_pasted(text)

    def insert_pasted(self, text: str) -> None:
        """Insert at the cursor; a long text as a placeholder."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines > LONG_PASTE_LINES or len(text) > LONG_PASTE_CHARACTERS:
            size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
            placeholder = f"[pasted {size}, {len(self._pastes) + 1}]"
            self._pastes[placeholder] = text
            text = placeholder
        self.insert(printable_with_tabs(text))

    def insert_completion(self, text: str, length: int) -> None:
        row, column = self.cursor_location
        self.replace(text, (row, column - length), (row, column))

    def clear_all(self) -> None:
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

    def send_text(self) -> None:
        """Send a text that is not empty; a backslash before the cursor starts a new line instead."""
        row, column = self.cursor_location
        if self.text_before_cursor.endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
        elif text := self.expanded_text.strip():
            self.post_message(self.Sent(text))

    def _handle_completion_key(self, key: str) -> bool:
        action = COMPLETION_KEYS.get(key) if self.is_completing else None
        if action:
            self.post_message(self.CompletionAction(action))
        return action is not None

    def _handle_prompt_key(self, key: str) -> bool:
        if key in NEWLINE_KEYS:
            self.insert("\n")
        elif key == "enter":
            self.send_text()
        elif key == "up" and self.cursor_location[0] == 0 and not self._is_below_first_row():
            return self._browse_questions(-1)
        elif key == "down" and self.cursor_at_last_line:
            return self._browse_questions(1)
        else:
            return False
        return True

    def _is_below_first_row(self) -> bool:
        """Whether the cursor is in a later row of a wrapped first line."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y > 0

    def _browse_questions(self, step: int) -> bool:
        """Show an earlier or a later entry that starts like the unsent text."""
        earlier, index = self._earlier_questions, self._question_index
        if index is None:
            if step > 0:
                return False
            index, self._unsent_text = len(earlier), self.text
        candidates = range(index - 1, -1, -1) if step < 0 else range(index + 1, len(earlier))
        found = next((each for each in candidates if earlier[each].startswith(self._unsent_text)), None)
        if found is not None or step > 0:
            self._question_index = found
            self.set_text(self._unsent_text if found is None else earlier[found])
        return True


COMPLETION_KEYS = {"up": "up", "down": "down", "tab": "accept", "enter": "enter", "escape": "close"}


def read_prompt_history(path: Path) -> list[str]:
    """The last prompts, the newest last, each once; empty when the file is missing."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    questions: list[str] = []
    question: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("+"):
            question.append(line[1:])
        elif question:
            questions.append("\n".join(question))
            question = []
    return list(reversed(dict.fromkeys(reversed(questions))))[-MAX_QUESTIONS:]


def append_prompt_history(path: Path, question: str) -> None:
    """Append a prompt; write errors are ignored."""
    written = "".join(f"+{line}\n" for line in question.split("\n"))
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n{written}")
    except OSError:
        return
