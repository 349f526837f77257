"""The preview beside the list of conversations: the last request, and the beginning of its answer."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from specchat.chat.history import StoredTurn
from specchat.tui.glyphs import Glyphs, printable

MAX_QUESTION_CHARS, MAX_ANSWER_CHARS = 600, 3000  # more would not fit


class SessionPreview(Static):
    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("", id="preview", markup=False)
        self._glyphs = glyphs

    def show_turn(self, turn: StoredTurn | None) -> None:
        if turn is None:
            self.update(Content("this conversation is empty").stylize("$text-muted"))
            return
        question = printable(str(turn.request.get("text", ""))[:MAX_QUESTION_CHARS])
        heading = Content(f"{self._glyphs.prompt_mark} {question}").stylize("$text-accent")
        self.update(heading + Content("\n\n" + printable(turn.answer.text[:MAX_ANSWER_CHARS])))
