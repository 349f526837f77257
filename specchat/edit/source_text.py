"""A text as it is on disk, and what an edit must preserve: encoding, byte order mark, line ends, final newline.

The model reads and writes plain newlines; `Source.encode` restores the rest. Encoding a decoded text again always gives
the same bytes. Knows no model.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from pathlib import Path, PurePath

from specchat.chat.attachments import decode_bytes, plain_newlines
from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.edit.hunks import diff_lines, split_lines, unified_diff
from specchat.errors import InputError, NoUsableEditError
from specchat.regular_file import read_regular_file
from specchat.syntax.languages import language_of

CRLF, NOTEBOOK_SUFFIX = "\r\n", ".ipynb"


@dataclass(frozen=True)
class Source:
    """A text to edit. `text` has plain newlines; `raw` holds the bytes that were read."""

    name: str
    raw: bytes
    text: str
    newline: str
    codec: str

    @cached_property
    def language(self) -> str:
        return language_of(self.name, self.text)

    @property
    def indent(self) -> str:
        """Indentation of the first line that is not blank, for a selection inside a function."""
        line = self.text.lstrip("\n").partition("\n")[0]
        return line[: len(line) - len(line.lstrip())] if line.strip() else ""

    def with_original_ending(self, text: str) -> str:
        """A text with the final newlines of the original; a new file ends with one newline."""
        end = self.text[len(self.text.rstrip("\n")) :] if self.text else "\n"
        return text.rstrip("\n") + end if text else text

    def encode(self, text: str) -> bytes:
        """Encode a new text like the original. Unchanged lines keep their own line ends."""
        whole = "".join(self._restore_newlines(split_lines(self.with_original_ending(text))))
        try:
            return whole.encode(self.codec)
        except UnicodeEncodeError as error:
            character = whole[error.start]
            raise NoUsableEditError(
                f"{self.name}: the new text holds {character!r}, which {self.codec} cannot encode"
            ) from None

    def _restore_newlines(self, lines: list[str]) -> Iterator[str]:
        """Each line with the line end of the old line that it is or replaces."""
        old = split_lines(self.raw.decode(self.codec))
        if len({line.endswith(CRLF) for line in old if line.endswith("\n")}) < 2:
            yield from (line.replace("\n", self.newline) for line in lines)
            return
        for line, original in zip(lines, self._matching_old_lines(old, lines), strict=True):
            newline = self.newline if original is None else CRLF if original.endswith(CRLF) else "\n"
            yield line.replace("\n", newline)

    def _matching_old_lines(self, old: list[str], lines: list[str]) -> list[str | None]:
        """For each new line the old one that it is or replaces."""
        origins: list[str | None] = []
        done = 0
        for change in diff_lines(split_lines(self.text), lines):
            origins += old[done : change.first]
            replaced: list[str | None] = [*old[change.first : change.end]]
            origins += (replaced + [None] * len(change.new))[: len(change.new)]
            done = change.end
        return [*origins, *old[done:]]


def read_source(path: Path) -> Source:
    """Read a file to edit; InputError when it is missing, not a regular file, or not text."""
    raw = read_regular_file(path, MAX_ATTACHED_BYTES)
    refuse_notebook(str(path))
    return make_source(raw, str(path))


def make_source(raw: bytes, name: str) -> Source:
    """A text from bytes; its newline is the one that most lines use. InputError for bytes that no text encodes to."""
    text, codec = decode_bytes(raw, name)
    if text.encode(codec) != raw:  # UTF-16 in the byte order of another machine
        raise InputError(f"{name}: {codec} in this byte order can be read, and not written; convert it to UTF-8 first")
    newline = CRLF if 2 * text.count(CRLF) > text.count("\n") else "\r" if "\r" in text and "\n" not in text else "\n"
    return Source(name, raw, plain_newlines(text), newline, codec)


def refuse_notebook(name: str) -> None:
    """InputError for a notebook: its cells are JSON, and an edit of that would lose cells or outputs."""
    if PurePath(name).suffix.lower() == NOTEBOOK_SUFFIX:
        raise InputError(f"{name}: a notebook; edit a cell in its editor, or the script of 'jupytext --to py {name}'")


def fit_tabs(old: str, new: str) -> str:
    """A text with tabs for the blanks of its indentation, if the old one has tabs there and no blanks."""
    if not re.search(r"^\t", old, re.MULTILINE) or re.search(r"^ {2}", old, re.MULTILINE):
        return new
    widths = [len(blanks) for blanks in re.findall(r"^ {2,}(?=[^\s*])", new, re.MULTILINE)]
    blanks, line = re.findall(r"\A\n*( *)(.*?) *$", new, re.MULTILINE)[0]
    same = re.search(rf"^(\t+){re.escape(line)}$", old, re.MULTILINE)
    unit = len(blanks) // len(same[1]) if blanks and same else gcd(*widths)
    as_tabs = lambda found: "\t" * (len(found[0]) // unit) + " " * (len(found[0]) % unit)
    return re.sub(r"^ {2,}(?=\S)", as_tabs, new, flags=re.MULTILINE) if unit > 1 else new


def source_diff(source: Source, text: str) -> str:
    """A unified diff that `patch -p1` and `git apply` accept."""
    codec = source.codec.removesuffix("-sig")
    return unified_diff(source.name, source.raw.decode(codec), source.encode(text).decode(codec))
