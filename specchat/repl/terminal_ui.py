"""What a terminal asks, on stderr, because stdout is the answer; the hunks of an edit, on stdout, and $EDITOR."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from specchat.app.agent.call_consent import ANSWER_KEYS, ConsentQuestion
from specchat.app.agent.project_agent import AgentUI
from specchat.app.consent import Answer
from specchat.edit.hunks import unified_diff
from specchat.own_text import translated
from specchat.repl.answer_printer import StagePrinter
from specchat.repl.interrupt import InterruptFlag, keyboard_interrupts
from specchat.repl.temporary_line import TemporaryLine
from specchat.terminal import Styled, can_redraw, printable_with_tabs, write_line

if TYPE_CHECKING:
    from specchat.app.hunk_review import EditUI

KEYS = "y yes, a {always}, n no, s no and stop"
COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m"}
RESET = "\x1b[0m"


def terminal_ui() -> AgentUI:
    """It asks only where a person types and reads."""
    return AgentUI(ask_consent, confirm) if sys.stdin.isatty() and sys.stderr.isatty() else AgentUI()


def ask_consent(question: ConsentQuestion) -> Answer:
    """Show the diff or the command, and ask; Ctrl-C and the end of input stop the work."""
    write_line(f"\n{translated(question.summary)}", sys.stderr)
    if change := question.change:
        diff = unified_diff(change.path, change.old, change.new)
        write_line(colour_hunk(diff), sys.stderr)
    while typed := prompt_user(f"allow it? {KEYS.format(always=question.always)} [y,a,n,s] "):
        if answer := ANSWER_KEYS.get(typed.strip().lower()[:1]):
            return answer
    return Answer.STOP


def confirm(question: str) -> bool:
    """Whether the user says yes; the first line is the question, and the others come before it."""
    title, _, text = question.partition("\n")
    write_line(text, sys.stderr)
    return prompt_user(f"{title} [y/N] ").strip().lower().startswith("y")


def terminal_edit_ui(cancelled: InterruptFlag) -> EditUI:
    """Hunks on stdout, progress and everything else on stderr."""
    from specchat.app.hunk_review import EditUI  # what edits imports slowly

    progress = TemporaryLine()

    def show_notice(message: str) -> None:
        progress.erase()
        write_line(translated(message), sys.stderr)

    def show_hunk(hunk: str) -> None:
        progress.erase()
        sys.stdout.write(colour_hunk(hunk))
        sys.stdout.flush()

    return EditUI(
        lambda question: prompt_user(question, at_interrupt=None),
        show_hunk,
        show_notice,
        lambda text, suffix: edit_in_editor(text, suffix, show_notice),
        progress.show,
        StagePrinter(progress).on_event,
        cancelled,
        show_rejected=lambda diff: write_line(colour_hunk(diff), sys.stderr),
    )


def prompt_user(question: str, *, at_interrupt: str | None = "") -> str:
    """The line that the user types; "" at the end of input. Ctrl-C is `at_interrupt`, and not caught for None."""
    sys.stderr.write(translated(question))
    sys.stderr.flush()
    with keyboard_interrupts():
        try:
            return sys.stdin.readline()
        except KeyboardInterrupt:
            if at_interrupt is None:
                raise
            return at_interrupt


def colour_hunk(hunk: str) -> str:
    if not can_redraw(sys.stderr):
        return hunk
    title, *lines = printable_with_tabs(hunk).split("\n")
    coloured = (f"{COLOURS[line[0]]}{line}{RESET}" if line[:1] in COLOURS else line for line in lines)
    return Styled("\n".join([title, *coloured]))


def edit_in_editor(text: str, suffix: str, show_message: Callable[[str], None]) -> str | None:
    """The text after the user edited it; None when the editor failed. `suffix` is that of the file."""
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with TemporaryDirectory(prefix="specchat-hunk-") as folder:
        file = Path(folder) / f"hunk{suffix}"
        file.write_text(text, encoding="utf-8", newline="")
        try:
            ran = subprocess.run([*shlex.split(program), str(file)], check=False)
        except (OSError, ValueError) as error:
            show_message(f"{program}: {error}")
            return None
        return file.read_bytes().decode("utf-8", "replace") if ran.returncode == 0 else None
