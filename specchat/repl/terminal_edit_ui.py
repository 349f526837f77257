"""The edit callbacks of a terminal: hunks on stdout, progress and everything else on stderr."""

import sys

from specchat.app.edit_ui import EditUI
from specchat.repl.interrupt import InterruptFlag, keyboard_interrupts
from specchat.repl.terminal_review import colour_hunk, edit_in_editor, prompt_user, wants_colours
from specchat.terminal import Styled, printable_with_tabs

ERASE_LINE = "\r\x1b[K"


def terminal_edit_ui(cancelled: InterruptFlag) -> EditUI:
    return EditUI(
        _read_input,
        _show_hunk,
        _show_notice,
        lambda text, suffix: edit_in_editor(text, suffix, _show_notice),
        _show_progress,
        cancelled=cancelled,
        show_rejected=lambda diff: _show_notice(colour_hunk(diff) if _can_erase_line() else diff),
    )


def erase_line() -> None:
    """Remove a line of progress."""
    if _can_erase_line():
        sys.stderr.write(Styled(ERASE_LINE))


def _can_erase_line() -> bool:
    return sys.stderr.isatty() and wants_colours()


def _read_input(question: str) -> str:
    with keyboard_interrupts():
        return prompt_user(question)


def _show_progress(line: str) -> None:
    """A line that the next one replaces; terminals only."""
    if _can_erase_line():
        sys.stderr.write(Styled(f"{ERASE_LINE}{printable_with_tabs(line)}"))
        sys.stderr.flush()


def _show_notice(message: str) -> None:
    erase_line()
    print(message, file=sys.stderr)


def _show_hunk(hunk: str) -> None:
    erase_line()
    sys.stdout.write(colour_hunk(hunk) if _can_erase_line() else hunk)
    sys.stdout.flush()
