"""A temporary line on stderr while a file is rewritten."""

from __future__ import annotations

import sys
from functools import cache

from specchat.chat.events import Event, Notice
from specchat.cli.print_turn import ERASE_LINE
from specchat.edit.progress_line import ProgressLine
from specchat.edit.terminal_review import wants_colours


@cache
def _print_notice(text: str) -> None:
    """Print a notice once: every file and every retry may open a session, and each repeats it."""
    print(f"specchat: {text}", file=sys.stderr)


class EditProgress:
    """Draws on a terminal only, and erases itself."""

    def __init__(self, original: str) -> None:
        self._progress_line = ProgressLine(original, self._show)
        self._shown_line = ""
        self._is_visible = sys.stderr.isatty() and wants_colours()

    def on_event(self, event: Event) -> None:
        """Update the line; print a notice above it."""
        if isinstance(event, Notice):
            self.erase()
            _print_notice(event.text)
        self._progress_line.on_event(event)

    def erase(self) -> None:
        """Remove the line."""
        if self._shown_line:
            self._shown_line = ""
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()

    def _show(self, line: str) -> None:
        if self._is_visible and line != self._shown_line:
            self._shown_line = line
            sys.stderr.write(f"{ERASE_LINE}{line}")
            sys.stderr.flush()
