"""What a conversation was about, beside the list of conversations: its last question, and how the answer begins."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from specchat.chat.history import StoredTurn
from specchat.tui.glyphs import Glyphs, visible

LONGEST_QUESTION, LONGEST_ANSWER = 600, 3000  # characters; more would not fit anyway


class Preview(Static):
    """The words of one turn, as plain text."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("", id="preview", markup=False)
        self._glyphs = glyphs

    def show(self, turn: StoredTurn | None) -> None:
        """This turn, or that there is none yet."""
        if turn is None:
            self.update(Content("nothing was said yet").stylize("$text-muted"))
            return
        question = visible(str(turn.request.get("text", ""))[:LONGEST_QUESTION])
        asked = Content(f"{self._glyphs.question} {question}").stylize("$text-accent")
        self.update(asked + Content("\n\n" + visible(turn.answered.text[:LONGEST_ANSWER])))
