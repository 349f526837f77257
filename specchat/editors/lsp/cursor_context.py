"""What stands around the cursor, whether anything should be offered there, and what is asked then. Knows no engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lsprotocol import types

from specchat.chat.fim_request import Gap
from specchat.editors.lsp.documents import Document

PREFIX_LETTERS, SUFFIX_LETTERS = 12_000, 4_000
STEP_LETTERS = 3_000  # the window moves in steps, so that what was read before the cursor stays known
CLOSING = re.compile(r"[\s)\]}>\"'`;:,]*\Z")
BEGUN_WORD = re.compile(r"\w*\Z")
EMPTY_COMMENT = re.compile(r"\s*(#|//|--|;|%|/?\*+|<!--|\"\"\"|''')\s*\Z")


@dataclass(frozen=True)
class Place:
    """A cursor in a text. `typed` stands from `first` to `end` and is what an insertion begins with."""

    document: Document
    first: int
    end: int
    typed: str

    @property
    def before(self) -> str:
        """The text up to the gap, with what is typed."""
        return _plain(self.document.text[: self.first] + self.typed)

    @property
    def after(self) -> str:
        """The text behind the gap."""
        return _plain(self.document.text[self.end :])

    @property
    def line_before(self) -> str:
        """The line up to the gap."""
        return self.before.rpartition("\n")[2]

    @property
    def line_after(self) -> str:
        """The line behind the gap."""
        return self.after.partition("\n")[0]

    @property
    def is_promising(self) -> bool:
        """Whether something may be offered unasked: not amid a line, and not where a comment has yet to begin."""
        return bool(CLOSING.match(self.line_after)) and not EMPTY_COMMENT.match(self.line_before)

    def gap(self, max_tokens: int, lines: int, seconds: float) -> Gap:
        """What the engine is asked: the nearest of the text, from the beginning of a line."""
        before, after = self.before, self.after[:SUFFIX_LETTERS]
        if CLOSING.match(self.line_after):
            after = after[len(self.line_after) :]  # a bracket that closes by itself tells nothing
        too_much = len(before) - PREFIX_LETTERS
        if too_much > 0:
            cut = -(-too_much // STEP_LETTERS) * STEP_LETTERS
            before = before[before.find("\n", cut) + 1 or cut :]
        return Gap(_whole(before), _whole(after), max_tokens, lines=lines, seconds=seconds)


def place_of(
    document: Document, position: types.Position, selected: types.SelectedCompletionInfo | None = None
) -> Place:
    """The place of a cursor; with an entry of the editor's own list selected, as if that had been typed."""
    if selected is not None:
        first, end = document.offset(selected.range.start), document.offset(selected.range.end)
        return Place(document, first, max(first, end), selected.text)
    end = document.offset(position)
    begun = BEGUN_WORD.search(document.text[max(0, end - 100) : end])
    typed = begun[0] if begun else ""
    return Place(document, end - len(typed), end, typed)


def _whole(text: str) -> str:
    """Half a surrogate pair is no text; some editors send one while an emoji is typed."""
    return text.encode("utf-8", "replace").decode()


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
