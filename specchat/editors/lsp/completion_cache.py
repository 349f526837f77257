"""The last suggestion, while somebody types along it: what is left of it is offered without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.editors.lsp.cursor_context import CursorContext


@dataclass(frozen=True)
class CachedSuggestion:
    """A suggestion, where it was made, and what stood around it."""

    uri: str
    prefix: str
    suffix: str
    text: str

    def remaining_at(self, context: CursorContext) -> str:
        """What of it is still to be typed here; "" when this is another place or something else was typed."""
        if (
            context.document.uri != self.uri
            or context.suffix != self.suffix
            or not context.prefix.startswith(self.prefix)
        ):
            return ""
        typed = context.prefix[len(self.prefix) :]
        text = self.text.replace("\r\n", "\n")
        if not text.startswith(typed) or len(typed) >= len(text):
            return ""
        return text[len(typed) :].replace("\n", context.document.newline)


def cache_suggestion(context: CursorContext, text: str) -> CachedSuggestion:
    """Keep a suggestion."""
    return CachedSuggestion(context.document.uri, context.prefix, context.suffix, text)
