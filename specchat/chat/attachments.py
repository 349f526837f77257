"""Files that travel with a question: how they are read, and how the model gets to see them. Knows no model.

Only text can be attached. Files follow the question, each under its name and in a fence. A passage of a file is called
"a.py lines 10-14".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.errors import InputError

FENCE_LANGUAGES = {
    ".bash": "bash", ".c": "c", ".cpp": "cpp", ".css": "css", ".go": "go", ".html": "html", ".java": "java",
    ".js": "javascript", ".json": "json", ".md": "markdown", ".py": "python", ".rs": "rust", ".sh": "bash",
    ".toml": "toml", ".ts": "typescript", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
MEBIBYTE = 2**20
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # the last are bytes of a name that are no UTF-8
PASSAGE_NAME = re.compile(r"(?P<file>.+)(?P<lines> lines \d+-\d+)")


def read_attachment(path: Path) -> Attachment:
    """A text file, under the name it was asked for by."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ATTACHED_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return Attachment(display_name(path), decode_text(content, display_name(path)))


def display_name(path: Path) -> str:
    """The name of a file as a terminal and a model may see it: nothing in it is a command or no text."""
    return CONTROL_CHARACTERS.sub("?", str(path))


def decode_text(content: bytes, name: str) -> str:
    """The text that these bytes are; an InputError when they are none."""
    if len(content) > MAX_ATTACHED_BYTES:
        raise InputError(f"{name}: more than {MAX_ATTACHED_BYTES // MEBIBYTE} MiB; attach the part that matters")
    if b"\0" in content:
        raise InputError(f"{name}: a binary file (it holds NUL bytes); only text can be attached")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not a text in UTF-8 (byte {error.start} is none); convert it first") from error


def with_attachments(question: str, files: Sequence[Attachment]) -> str:
    """What the user says to the model: the question, and then each file under its name, in a fence.

    "Why?" with `a.py`, "x = 1", becomes "Why?\\n\\nFile `a.py`:\\n```python\\nx = 1\\n```". A rewritten file stands
    so in an answer, which makes a copy of the file a copy of its tokens.
    """
    return "\n\n".join([question, *(_fenced(file) for file in files)])


def _fenced(file: Attachment) -> str:
    name = " ".join(file.name.split())  # a line break in a name must not look like the beginning of the text
    passage = PASSAGE_NAME.fullmatch(name)
    name, lines = (passage["file"], passage["lines"]) if passage else (name, "")
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall("`+", file.text)), default=0))
    end = "" if file.text.endswith("\n") else "\n"
    return f"File `{name}`{lines}:\n{fence}{FENCE_LANGUAGES.get(PurePath(name).suffix, '')}\n{file.text}{end}{fence}"
