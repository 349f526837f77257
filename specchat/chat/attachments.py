"""Files as texts: how bytes are decoded, for questions and for edits, and the form of an attachment in the prompt.

Only text can be attached. Each file has its name and a code fence. A passage of a file has the name "a.py lines 10-14".

Files precede a question: two questions about one file then begin alike, and the rows of the file are computed once. An
instruction comes first, because its answer is mostly the file again, and small models follow it better so. Knows no
model.
"""

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from specchat.chat.request import EDIT_TASKS, MAX_ATTACHED_BYTES, Attachment
from specchat.chat.request_kinds import is_question
from specchat.errors import InputError
from specchat.regular_file import NO_SUCH_FILE

FENCE_LANGUAGES = {
    ".bash": "bash", ".c": "c", ".cpp": "cpp", ".css": "css", ".go": "go", ".html": "html", ".java": "java",
    ".js": "javascript", ".json": "json", ".md": "markdown", ".py": "python", ".rs": "rust", ".sh": "bash",
    ".toml": "toml", ".ts": "typescript", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
MEBIBYTE = 2**20
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # surrogates: bytes that are not UTF-8
CODING_DECLARATION = re.compile(rb"coding[:=]\s*([-\w.]+)")  # PEP 263, and what Vim and Emacs read
QUADRATIC_CODECS = ("idna", "punycode")  # of names of hosts: a text of 1 MiB takes a quarter of an hour
UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
BINARY_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f]")  # these do not occur in Latin-1 texts
PASSAGE_NAME = re.compile(r"(?P<file>.+)(?P<lines> lines \d+-\d+)")


def read_attachment(path: Path) -> Attachment:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ATTACHED_BYTES + 1)
    except FileNotFoundError as error:
        raise InputError(f"{path}: {NO_SUCH_FILE}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    return Attachment(display_name(path), decode_text(content, display_name(path)))


def display_name(path: Path) -> str:
    """The name of a file without control characters, safe for a terminal and a model."""
    return CONTROL_CHARACTERS.sub("?", str(path))


def decode_text(content: bytes, name: str) -> str:
    """The text of these bytes with plain newlines, as an edit reads it; InputError when they are not text."""
    return plain_newlines(decode_bytes(content, name)[0])


def plain_newlines(text: str) -> str:
    """The text with line feeds as newlines, also one with carriage returns alone, as old Macs wrote."""
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def decode_bytes(raw: bytes, name: str) -> tuple[str, str]:
    """The text and its codec: UTF-8, UTF-16 with its mark, the declared encoding, or Latin-1 if it looks like text."""
    if len(raw) > MAX_ATTACHED_BYTES:
        raise InputError(f"{name}: more than {MAX_ATTACHED_BYTES // MEBIBYTE} MiB; cut out the part that matters")
    if raw.startswith(UTF16_BOMS):
        with suppress(UnicodeDecodeError):
            if "\0" not in (text := raw.decode("utf-16")):
                return text, "utf-16"
    if b"\0" in raw:
        raise InputError(f"{name}: a binary file (it contains NUL bytes); only text can be read")
    codec = "utf-8-sig" if raw.startswith(codecs.BOM_UTF8) else "utf-8"
    try:
        return raw.decode(codec), codec
    except UnicodeDecodeError as error:
        place = error.start
    match = next((each for each in map(CODING_DECLARATION.search, raw.split(b"\n", 2)[:2]) if each), None)
    declared = match[1].decode("ascii", "replace") if match else ""
    if declared:
        with suppress(LookupError, ValueError):
            text = "" if codecs.lookup(declared).name in QUADRATIC_CODECS else raw.decode(declared)
            if text.encode(declared) == raw:
                return text, declared
    if BINARY_BYTES.search(raw):
        raise InputError(f"{name}: not text (byte {place} is not UTF-8), nor in another known encoding")
    return raw.decode("latin-1"), "latin-1"


def with_attachments(question: str, files: Sequence[Attachment], task: str = "") -> str:
    """The content of a user message: the question or instruction, and each file with its name, in a code fence.

    "Why?" with `a.py`, "x = 1", becomes "File `a.py`:\\n```python\\nx = 1\\n```\\n\\nWhy?". An answer uses the same
    fence for a rewritten file, so a copy of the file is a copy of its tokens.
    """
    fenced = [fenced_file(file) for file in files]
    files_first = task not in EDIT_TASKS and is_question(question)
    return "\n\n".join([*fenced, question] if files_first else [question, *fenced])


def fenced_file(file: Attachment) -> str:
    name = " ".join(file.name.split())  # a line break in a name must not look like the start of the text
    passage = PASSAGE_NAME.fullmatch(name)
    name, lines = (passage["file"], passage["lines"]) if passage else (name, "")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", file.text)), default=0))
    end = "" if file.text.endswith("\n") else "\n"
    return f"File `{name}`{lines}:\n{fence}{FENCE_LANGUAGES.get(PurePath(name).suffix, '')}\n{file.text}{end}{fence}"
