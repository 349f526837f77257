"""The edit callbacks of a terminal: hunks on stdout, progress and everything else on stderr."""

import sys

from specchat.app.edit_ui import EditUI
from specchat.repl.answer_printer import TemporaryLine
from specchat.repl.interrupt import InterruptFlag
from specchat.repl.terminal_ui import colour_hunk, edit_in_editor, prompt_user


def terminal_edit_ui(cancelled: InterruptFlag) -> EditUI:
    progress = TemporaryLine()

    def show_notice(message: str) -> None:
        progress.erase()
        print(message, file=sys.stderr)

    def show_hunk(hunk: str) -> None:
        progress.erase()
        sys.stdout.write(colour_hunk(hunk) if progress.is_possible else hunk)
        sys.stdout.flush()

    return EditUI(
        lambda question: prompt_user(question, at_interrupt=None),
        show_hunk,
        show_notice,
        lambda text, suffix: edit_in_editor(text, suffix, show_notice),
        progress.show,
        cancelled=cancelled,
        show_rejected=lambda diff: show_notice(colour_hunk(diff) if progress.is_possible else diff),
    )
