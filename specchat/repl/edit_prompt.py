"""Where somebody sits who edits files line by line."""

from __future__ import annotations

import sys

from specchat.commands.file_edits import Desk
from specchat.edit.terminal_review import answer_to, coloured, in_editor, is_coloured
from specchat.repl.interrupt import Stop

ERASE_LINE = "\r\x1b[K"


def line_desk(stopped: Stop) -> Desk:
    """A desk at this terminal."""
    return Desk(
        answer_to, _show, _note, lambda text, ending: in_editor(text, ending, _note), _follow, cancelled=stopped
    )


def _can_draw() -> bool:
    return sys.stderr.isatty() and is_coloured()


def _follow(line: str) -> None:
    """A passing line, for people who see it pass."""
    if _can_draw():
        sys.stderr.write(f"{ERASE_LINE}{line}")
        sys.stderr.flush()


def _note(message: str) -> None:
    print(f"{ERASE_LINE if _can_draw() else ''}{message}", file=sys.stderr)


def _show(hunk: str) -> None:
    if _can_draw():
        sys.stderr.write(ERASE_LINE)
        hunk = coloured(hunk)
    sys.stdout.write(hunk)
    sys.stdout.flush()
