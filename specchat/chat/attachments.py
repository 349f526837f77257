"""Attached files: how they are read, and their form in the prompt. Knows no model.

Only text can be attached. Each file has its name and a code fence. A passage of a file has the name "a.py lines 10-14".

Files precede the question: two questions about one file then begin alike, and the rows of the file are computed once,
whoever asks. In an edit the instruction comes first, because its answer is the file again, which follows at once.
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from specchat.chat.request import EDIT_TASKS, MAX_ATTACHED_BYTES, Attachment
from specchat.errors import InputError

FENCE_LANGUAGES = {
    ".bash": "bash", ".c": "c", ".cpp": "cpp", ".css": "css", ".go": "go", ".html": "html", ".java": "java",
    ".js": "javascript", ".json": "json", ".md": "markdown", ".py": "python", ".rs": "rust", ".sh": "bash",
    ".toml": "toml", ".ts": "typescript", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
MEBIBYTE = 2**20
CONTROL_CHARACTERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
)  # surrogates are bytes of a name that are not UTF-8
PASSAGE_NAME = re.compile(r"(?P<file>.+)(?P<lines> lines \d+-\d+)")


def read_attachment(path: Path) -> Attachment:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ATTACHED_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return Attachment(display_name(path), decode_text(content, display_name(path)))


def display_name(path: Path) -> str:
    """The name of a file without control characters, safe for a terminal and a model."""
    return CONTROL_CHARACTERS.sub("?", str(path))


def decode_text(content: bytes, name: str) -> str:
    """Decode a text; InputError when the bytes are not text."""
    if len(content) > MAX_ATTACHED_BYTES:
        raise InputError(f"{name}: more than {MAX_ATTACHED_BYTES // MEBIBYTE} MiB; attach the part that matters")
    if b"\0" in content:
        raise InputError(f"{name}: a binary file (it contains NUL bytes); only text can be attached")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 text (byte {error.start} is invalid); convert it first") from error


def with_attachments(question: str, files: Sequence[Attachment], task: str = "") -> str:
    """The content of a user message: each file with its name, in a code fence, and the question.

    "Why?" with `a.py`, "x = 1", becomes "File `a.py`:\\n```python\\nx = 1\\n```\\n\\nWhy?". An answer uses the same
    fence for a rewritten file, so a copy of the file is a copy of its tokens.
    """
    fenced = [fenced_file(file) for file in files]
    return "\n\n".join([question, *fenced] if task in EDIT_TASKS else [*fenced, question])


def fenced_file(file: Attachment) -> str:
    name = " ".join(file.name.split())  # a line break in a name must not look like the start of the text
    passage = PASSAGE_NAME.fullmatch(name)
    name, lines = (passage["file"], passage["lines"]) if passage else (name, "")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", file.text)), default=0))
    end = "" if file.text.endswith("\n") else "\n"
    return f"File `{name}`{lines}:\n{fence}{FENCE_LANGUAGES.get(PurePath(name).suffix, '')}\n{file.text}{end}{fence}"
