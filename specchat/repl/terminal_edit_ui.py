"""The edit callbacks of the line mode: hunks and progress on this terminal."""

import sys

from specchat.app.file_edits import EditUI
from specchat.edit.terminal_review import colour_hunk, edit_in_editor, prompt_user, wants_colours
from specchat.repl.interrupt import InterruptFlag
from specchat.terminal import Styled, printable_with_tabs

ERASE_LINE = "\r\x1b[K"


def terminal_edit_ui(cancelled: InterruptFlag) -> EditUI:
    return EditUI(
        prompt_user,
        _show_hunk,
        _show_notice,
        lambda text, ending: edit_in_editor(text, ending, _show_notice),
        _show_progress,
        cancelled=cancelled,
        show_rejected=lambda diff: _show_hunk(f"{diff}\n"),
    )


def _can_erase_line() -> bool:
    return sys.stderr.isatty() and wants_colours()


def _show_progress(line: str) -> None:
    """A line that the next one replaces; terminals only."""
    if _can_erase_line():
        sys.stderr.write(Styled(f"{ERASE_LINE}{printable_with_tabs(line)}"))
        sys.stderr.flush()


def _show_notice(message: str) -> None:
    _erase_line()
    print(message, file=sys.stderr)


def _show_hunk(hunk: str) -> None:
    _erase_line()
    sys.stdout.write(colour_hunk(hunk) if _can_erase_line() else hunk)
    sys.stdout.flush()


def _erase_line() -> None:
    if _can_erase_line():
        sys.stderr.write(Styled(ERASE_LINE))
