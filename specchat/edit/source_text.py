"""A text as it is on disk, and what must stay of it: encoding, byte order mark, newlines, the end of the last line.

The model sees and writes plain `\\n`; `encode` gives back what belongs to the file. Knows no model.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.edit.encoding import decode_bytes
from specchat.edit.hunks import diff_lines, split_lines
from specchat.errors import InputError, NoUsableEditError

CRLF = "\r\n"


@dataclass(frozen=True)
class Source:
    """What is to be edited. `text` has plain newlines; `raw` is what was read, byte for byte."""

    name: str
    raw: bytes
    text: str
    newline: str
    codec: str

    @property
    def indent(self) -> str:
        """How the first line begins: a selection inside a function keeps its place."""
        line = self.text.partition("\n")[0]
        return line[: len(line) - len(line.lstrip())] if line.strip() else ""

    def with_original_ending(self, text: str) -> str:
        """A text that ends as this one does; what was empty gets a newline."""
        end = self.text[len(self.text.rstrip("\n")) :] if self.text else "\n"
        return text.rstrip("\n") + end if text else text

    def encode(self, text: str) -> bytes:
        """A new text in the manner of the old one. Lines that stay keep their own newlines."""
        whole = "".join(self._restore_newlines(split_lines(self.with_original_ending(text))))
        try:
            return whole.encode(self.codec)
        except UnicodeEncodeError as error:
            letter = whole[error.start]
            raise NoUsableEditError(
                f"{self.name}: the new text holds {letter!r}, which is not in {self.codec}"
            ) from None

    def _restore_newlines(self, lines: list[str]) -> Iterator[str]:
        """Each line with the newline of the line that it was, or of the one whose place it takes."""
        old = split_lines(self.raw.decode(self.codec))
        if len({line.endswith(CRLF) for line in old if line.endswith("\n")}) < 2:
            yield from (line.replace("\n", self.newline) for line in lines)
            return
        for line, was in zip(lines, self._matching_old_lines(old, lines), strict=True):
            newline = self.newline if was is None else CRLF if was.endswith(CRLF) else "\n"
            yield line.replace("\n", newline)

    def _matching_old_lines(self, old: list[str], lines: list[str]) -> list[str | None]:
        """For each new line the old one that it stands for."""
        origins: list[str | None] = []
        done = 0
        for change in diff_lines(split_lines(self.text), lines):
            origins += old[done : change.first]
            replaced: list[str | None] = [*old[change.first : change.end]]
            origins += (replaced + [None] * len(change.new))[: len(change.new)]
            done = change.end
        return [*origins, *old[done:]]


def read_source(path: Path) -> Source:
    """A file to edit; InputError when it is missing, no file, or no text."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: not a file; an edit needs one")
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return make_source(raw, str(path))


def make_source(raw: bytes, name: str) -> Source:
    """A text from anywhere; the newline that most lines end with is the newline of the text."""
    decoded = decode_bytes(raw, name)
    text = decoded.text
    newline = CRLF if 2 * text.count(CRLF) > text.count("\n") else "\n"
    return Source(name, raw, text.replace(CRLF, "\n"), newline, decoded.codec)
