"""The open documents, and positions in them.

Documents are stored here and not in pygls, which counts a form feed or U+2028 as a line end; the protocol knows "\\n",
"\\r\\n" and "\\r" only (LSP 3.17, "Text Documents").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types

from specchat.edit.edit_plan import Region

LINE_END = re.compile(r"\r\n|\r|\n")
CODECS: Mapping[str, str] = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
CODE_UNIT_BYTES: Mapping[str, int] = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


@dataclass(frozen=True)
class Document:
    """One document at one version; `encoding` is the unit in which the editor counts columns."""

    uri: str
    text: str
    version: int | None
    language: str = ""
    encoding: str = "utf-16"

    @property
    def name(self) -> str:
        return Path(unquote(urlparse(self.uri).path)).name or "text"

    @property
    def newline(self) -> str:
        """The line end that most lines use."""
        return "\r\n" if 2 * self.text.count("\r\n") > self.text.count("\n") else "\n"

    @cached_property
    def line_starts(self) -> list[int]:
        return [0, *(match.end() for match in LINE_END.finditer(self.text))]

    def offset(self, position: types.Position) -> int:
        """The offset of a position; a position outside the text is moved to the nearest one inside."""
        if position.line >= len(self.line_starts):
            return len(self.text)
        line = self.line(position.line)
        raw = line.encode(CODECS[self.encoding], "surrogatepass")
        cut = raw[: max(0, position.character) * CODE_UNIT_BYTES[self.encoding]]
        return self.line_starts[position.line] + len(cut.decode(CODECS[self.encoding], "ignore"))

    def position(self, offset: int) -> types.Position:
        line = bisect_right(self.line_starts, offset) - 1
        raw = self.text[self.line_starts[line] : offset].encode(CODECS[self.encoding], "surrogatepass")
        return types.Position(line, len(raw) // CODE_UNIT_BYTES[self.encoding])

    def line(self, number: int) -> str:
        start = self.line_starts[number]
        end = self.line_starts[number + 1] if number + 1 < len(self.line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def region_text(self, region: Region) -> str:
        """The lines of a region, without the last newline."""
        return "\n".join(self.text.split("\n")[region.first - 1 : region.last])

    def with_change(self, change: types.TextDocumentContentChangeEvent) -> Document:
        if isinstance(change, types.TextDocumentContentChangeWholeDocument):
            return replace(self, text=change.text)
        first, end = self.offset(change.range.start), self.offset(change.range.end)
        return replace(self, text=self.text[:first] + change.text + self.text[max(first, end) :])


class Documents:
    """All open documents. Files are never read from disk: the editor's text may differ."""

    def __init__(self) -> None:
        self.encoding = "utf-16"
        self._open: dict[str, Document] = {}

    def get(self, uri: str) -> Document | None:
        return self._open.get(uri)

    def open(self, item: types.TextDocumentItem) -> None:
        self._open[item.uri] = Document(item.uri, item.text, item.version, item.language_id, self.encoding)

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        document = self._open.get(params.text_document.uri)
        if document is None:
            return
        for change in params.content_changes:
            document = document.with_change(change)
        self._open[document.uri] = replace(document, version=params.text_document.version)

    def close(self, uri: str) -> None:
        self._open.pop(uri, None)
