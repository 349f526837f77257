"""The last suggestion. While the user types along it, the rest is offered without a request."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.editors.lsp.cursor_context import CursorContext


@dataclass(frozen=True)
class CachedSuggestion:
    uri: str
    prefix: str
    suffix: str
    text: str

    def remaining_at(self, context: CursorContext) -> str:
        """The part that is not typed yet; "" at another position or after other text was typed."""
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
