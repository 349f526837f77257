"""Files that travel with a question: how they are read, and how the model gets to see them. Knows no model.

Only text can be attached. A file is shown as a line with its name and then its text, ahead of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.errors import InputError

NAME_LINE = "File: "
MEGABYTE = 2**20


def read_attachment(path: Path) -> Attachment:
    """A text file, under the name it was asked for by."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: a folder; attach files, one by one")
        with path.open("rb") as file:
            content = file.read(MAX_ATTACHED_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return Attachment(str(path), decode_text(content, str(path)))


def decode_text(content: bytes, name: str) -> str:
    """The text that these bytes are; an InputError when they are none."""
    if len(content) > MAX_ATTACHED_BYTES:
        raise InputError(f"{name}: more than {MAX_ATTACHED_BYTES // MEGABYTE} MiB; attach the part that matters")
    if b"\0" in content:
        raise InputError(f"{name}: a binary file (it holds NUL bytes); only text can be attached")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not a text in UTF-8 (byte {error.start} is none); convert it first") from error


def with_attachments(question: str, files: Sequence[Attachment]) -> str:
    """What the user says to the model: the files, and then the question.

    One file `a.py` with "x = 1" and the question "Why?" become "File: a.py\\nx = 1\\n\\nWhy?".
    """
    return "".join(_shown(file) for file in files) + question


def _shown(file: Attachment) -> str:
    name = " ".join(file.name.split())  # a line break in a name must not look like the beginning of the text
    end = "" if file.text.endswith("\n") else "\n"
    return f"{NAME_LINE}{name}\n{file.text}{end}\n"
