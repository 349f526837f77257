"""A passing line on stderr while a file is written anew."""

from __future__ import annotations

import sys

from specchat.chat.events import Event
from specchat.cli.print_turn import ERASE_LINE
from specchat.edit.progress_line import Following
from specchat.edit.terminal_review import is_coloured


class Progress:
    """Draws on a terminal only, and leaves nothing behind."""

    def __init__(self, original: str) -> None:
        self._following = Following(original, self._show)
        self._shown = ""
        self._is_visible = sys.stderr.isatty() and is_coloured()

    def hear(self, event: Event) -> None:
        """Follow what happens."""
        self._following.hear(event)

    def erase(self) -> None:
        """Make room for what stays."""
        if self._shown:
            self._shown = ""
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()

    def _show(self, line: str) -> None:
        if self._is_visible and line != self._shown:
            self._shown = line
            sys.stderr.write(f"{ERASE_LINE}{line}")
            sys.stderr.flush()
