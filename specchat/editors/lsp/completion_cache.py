"""The last suggestion, while somebody types along it: what is left of it is offered without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.editors.lsp.cursor_context import Place


@dataclass(frozen=True)
class Remembered:
    """A suggestion, where it was made, and what stood around it."""

    uri: str
    before: str
    after: str
    text: str

    def left_at(self, place: Place) -> str:
        """What of it is still to be typed here; "" when this is another place or something else was typed."""
        if place.document.uri != self.uri or place.after != self.after or not place.before.startswith(self.before):
            return ""
        typed = place.before[len(self.before) :]
        text = self.text.replace("\r\n", "\n")
        if not text.startswith(typed) or len(typed) >= len(text):
            return ""
        return text[len(typed) :].replace("\n", place.document.newline)


def remember(place: Place, text: str) -> Remembered:
    """Keep a suggestion."""
    return Remembered(place.document.uri, place.before, place.after, text)
