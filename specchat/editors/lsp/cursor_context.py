"""The text around the cursor: whether to suggest something there, and the request for it. Knows no engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lsprotocol import types

from specchat.chat.fim_request import FimRequest
from specchat.editors.lsp.text_documents import Document

MAX_PREFIX_CHARS, MAX_SUFFIX_CHARS = 12_000, 4_000
PREFIX_STEP_CHARS = 3_000  # the prefix is cut in steps, so that the KV cache of its start stays valid
CLOSING_CHARS = re.compile(r"[\s)\]}>\"'`;:,]*\Z")
PARTIAL_WORD = re.compile(r"\w*\Z")
EMPTY_COMMENT = re.compile(r"\s*(#|//|--|;|%|/?\*+|<!--|\"\"\"|''')\s*\Z")


@dataclass(frozen=True)
class CursorContext:
    """A cursor in a document. `typed_prefix` stands at `start`:`end`; an inserted text begins with it."""

    document: Document
    start: int
    end: int
    typed_prefix: str

    @property
    def prefix(self) -> str:
        """The text before the gap, with the typed prefix."""
        return _normalize_newlines(self.document.text[: self.start] + self.typed_prefix)

    @property
    def suffix(self) -> str:
        return _normalize_newlines(self.document.text[self.end :])

    @property
    def line_prefix(self) -> str:
        return self.prefix.rpartition("\n")[2]

    @property
    def line_suffix(self) -> str:
        return self.suffix.partition("\n")[0]

    @property
    def is_suggestible(self) -> bool:
        """Whether to suggest automatically: not inside a line, and not after a bare comment sign."""
        return bool(CLOSING_CHARS.match(self.line_suffix)) and not EMPTY_COMMENT.match(self.line_prefix)

    def make_fim_request(self, max_tokens: int, lines: int, seconds: float) -> FimRequest:
        """A fill-in-the-middle request with the nearest text, from the start of a line."""
        before, after = self.prefix, self.suffix[:MAX_SUFFIX_CHARS]
        if CLOSING_CHARS.match(self.line_suffix):
            after = after[len(self.line_suffix) :]  # auto-closed brackets carry no information
        excess = len(before) - MAX_PREFIX_CHARS
        if excess > 0:
            cut = -(-excess // PREFIX_STEP_CHARS) * PREFIX_STEP_CHARS
            before = before[before.find("\n", cut) + 1 or cut :]
        return FimRequest(
            _without_surrogates(before),
            _without_surrogates(after),
            max_tokens,
            max_lines=lines,
            timeout_seconds=seconds,
        )


def cursor_context(
    document: Document, position: types.Position, selected: types.SelectedCompletionInfo | None = None
) -> CursorContext:
    """The context at a position; if an entry of the editor's list is selected, as if it had been typed."""
    if selected is not None:
        first, end = document.offset(selected.range.start), document.offset(selected.range.end)
        return CursorContext(document, first, max(first, end), selected.text)
    end = document.offset(position)
    word = PARTIAL_WORD.search(document.text[max(0, end - 100) : end])
    typed = word[0] if word else ""
    return CursorContext(document, end - len(typed), end, typed)


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which some editors send while an emoji is typed."""
    return text.encode("utf-8", "replace").decode()


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
