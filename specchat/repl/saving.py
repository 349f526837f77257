"""A conversation as a Markdown file: questions are quoted, answers stand as they were written.

Nothing that is there is ever written over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from specchat.chat.history import StoredTurn
from specchat.errors import InputError

FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)$", re.MULTILINE)


def save_as_markdown(path: Path, name: str, turns: Sequence[StoredTurn]) -> None:
    """Write the conversation to a new file. InputError when there is one, or none can be made."""
    text = "\n\n".join([f"# {' '.join(name.split()) or 'A conversation'}", *_blocks(turns)]) + "\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path}: is there already; name another file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _blocks(turns: Sequence[StoredTurn]) -> Iterator[str]:
    for turn in turns:
        lines = str(turn.request.get("text", "")).splitlines()
        if files := [f"@{file.get('name', '')}" for file in turn.request.get("files") or ()]:
            lines += ["", " ".join(files)]
        yield "\n".join(f"> {line}".rstrip() for line in lines)
        if answer := turn.answered.text.strip("\n"):
            yield _closed(answer)


def _closed(answer: str) -> str:
    """An answer that was stopped inside a block of code must not take the rest of the file into it."""
    marks = ""
    for fence in FENCE.finditer(answer):
        if not marks:
            marks = fence["marks"]
        elif fence["marks"].startswith(marks) and not fence["rest"].strip():
            marks = ""
    return f"{answer}\n{marks}" if marks else answer
