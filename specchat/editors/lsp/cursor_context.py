"""What stands around the cursor, whether anything should be offered there, and what is asked then. Knows no engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lsprotocol import types

from specchat.chat.fim_request import FimRequest
from specchat.editors.lsp.text_documents import Document

MAX_PREFIX_CHARS, MAX_SUFFIX_CHARS = 12_000, 4_000
PREFIX_STEP_CHARS = 3_000  # the window moves in steps, so that what was read before the cursor stays known
CLOSING_CHARS = re.compile(r"[\s)\]}>\"'`;:,]*\Z")
PARTIAL_WORD = re.compile(r"\w*\Z")
EMPTY_COMMENT = re.compile(r"\s*(#|//|--|;|%|/?\*+|<!--|\"\"\"|''')\s*\Z")


@dataclass(frozen=True)
class CursorContext:
    """A cursor in a text. `typed` stands from `first` to `end` and is what an insertion begins with."""

    document: Document
    start: int
    end: int
    typed_prefix: str

    @property
    def prefix(self) -> str:
        """The text up to the gap, with what is typed."""
        return _normalize_newlines(self.document.text[: self.start] + self.typed_prefix)

    @property
    def suffix(self) -> str:
        """The text behind the gap."""
        return _normalize_newlines(self.document.text[self.end :])

    @property
    def line_prefix(self) -> str:
        """The line up to the gap."""
        return self.prefix.rpartition("\n")[2]

    @property
    def line_suffix(self) -> str:
        """The line behind the gap."""
        return self.suffix.partition("\n")[0]

    @property
    def is_suggestible(self) -> bool:
        """Whether something may be offered unasked: not amid a line, and not where a comment has yet to begin."""
        return bool(CLOSING_CHARS.match(self.line_suffix)) and not EMPTY_COMMENT.match(self.line_prefix)

    def make_fim_request(self, max_tokens: int, lines: int, seconds: float) -> FimRequest:
        """What the engine is asked: the nearest of the text, from the beginning of a line."""
        before, after = self.prefix, self.suffix[:MAX_SUFFIX_CHARS]
        if CLOSING_CHARS.match(self.line_suffix):
            after = after[len(self.line_suffix) :]  # a bracket that closes by itself tells nothing
        too_much = len(before) - MAX_PREFIX_CHARS
        if too_much > 0:
            cut = -(-too_much // PREFIX_STEP_CHARS) * PREFIX_STEP_CHARS
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
    """The place of a cursor; with an entry of the editor's own list selected, as if that had been typed."""
    if selected is not None:
        first, end = document.offset(selected.range.start), document.offset(selected.range.end)
        return CursorContext(document, first, max(first, end), selected.text)
    end = document.offset(position)
    begun = PARTIAL_WORD.search(document.text[max(0, end - 100) : end])
    typed = begun[0] if begun else ""
    return CursorContext(document, end - len(typed), end, typed)


def _without_surrogates(text: str) -> str:
    """Half a surrogate pair is no text; some editors send one while an emoji is typed."""
    return text.encode("utf-8", "replace").decode()


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
