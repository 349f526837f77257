"""The review of an edit on a terminal: hunks on stdout, questions on stderr, and the person's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from specchat.edit.asking import Means, Quit, ask_about
from specchat.edit.hunks import Hunk, hunks_between
from specchat.edit.review import Review
from specchat.edit.source import Source
from specchat.edit.task import Edited
from specchat.errors import BrokenEditError, NotTakenError

COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m"}
RESET = "\x1b[0m"

Rewrite = Callable[[int, int, str], str | None]


def review(source: Source, edited: Edited, check: Callable[[str], None], rewrite: Rewrite) -> Review:
    """What the person takes, all decided and checked again; NotTakenError when that is nothing."""
    reviewed = Review(source.text, _in_order(source, edited))
    means = Means(_read, _show, _note, _in_editor(Path(source.name).suffix), rewrite)
    if edited.flags.words:
        _note(f"look closely: {edited.flags.words}")
    while True:
        try:
            ask_about(reviewed, means, source.name)
        except Quit:
            raise NotTakenError(f"{source.name}: left as it was") from None
        if not reviewed.taken or reviewed.text == source.text:
            return reviewed
        try:
            check(reviewed.text)
        except BrokenEditError as broken:
            _note(f"{broken}\nthis cannot be written as it is; decide on the last hunk again")
            reviewed.back()
        else:
            return reviewed


def _in_order(source: Source, edited: Edited) -> list[Hunk]:
    """The hunks that lose a comment first, then the others as they stand."""
    lost = [line for comment in edited.flags.lost_comments for line in comment.splitlines() if line.strip()]

    def loses(hunk: Hunk) -> bool:
        gone = "".join(line for change in hunk.changes for line in change.old)
        return any(line in gone for line in lost)

    return sorted(hunks_between(source.text, edited.text), key=lambda hunk: not loses(hunk))


def _read(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline()


def _note(message: str) -> None:
    print(message, file=sys.stderr)


def _show(hunk: str) -> None:
    sys.stdout.write(_coloured(hunk) if "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" else hunk)
    sys.stdout.flush()


def _coloured(hunk: str) -> str:
    title, *lines = hunk.split("\n")
    return "\n".join([title, *(f"{COLOURS[line[0]]}{line}{RESET}" if line[:1] in COLOURS else line for line in lines)])


def _in_editor(ending: str) -> Callable[[str], str | None]:
    def edit(text: str) -> str | None:
        """The text as the person left it; None when the editor did not end well."""
        program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        with TemporaryDirectory(prefix="specchat-hunk-") as folder:
            file = Path(folder) / f"hunk{ending}"
            file.write_text(text, encoding="utf-8", newline="")
            try:
                ran = subprocess.run([*shlex.split(program), str(file)], check=False)
            except (OSError, ValueError) as error:
                _note(f"{program}: {error}")
                return None
            return file.read_bytes().decode("utf-8", "replace") if ran.returncode == 0 else None

    return edit
