"""A text as it is on disk, and what must stay of it: byte order mark, newlines, the end of the last line, the mode.

The model sees and writes plain `\\n`; `encode` gives back what belongs to the file. Knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specchat.chat.attachments import decode_text
from specchat.errors import InputError

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Source:
    """What is to be edited. `text` has plain newlines; `raw` is what was read, byte for byte."""

    name: str
    raw: bytes
    text: str
    newline: str

    @property
    def indent(self) -> str:
        """How the first line begins: a selection inside a function keeps its place."""
        line = self.text.partition("\n")[0]
        return line[: len(line) - len(line.lstrip())] if line.strip() else ""

    def encode(self, text: str) -> bytes:
        """A new text in the manner of the old one."""
        end = self.text[len(self.text.rstrip("\n")) :]
        encoded = (text.rstrip("\n") + end).replace("\n", self.newline).encode()
        return BOM + encoded if self.raw.startswith(BOM) else encoded


def read_source(path: Path) -> Source:
    """A file to edit; InputError when it is missing, a folder, or no text."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return make_source(raw, str(path))


def make_source(raw: bytes, name: str) -> Source:
    """A text from anywhere; the newline that most lines end with is the newline of the text."""
    text = decode_text(raw, name)
    newline = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    return Source(name, raw, text.replace("\r\n", "\n"), newline)
