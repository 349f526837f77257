"""Shows what a model thinks on stderr, dimmed, while it streams; only on a terminal. The answer goes to stdout.

Elsewhere the line about the turn says how long the model thought.
"""

import os
import sys

from specchat.chat.events import Event, ThinkingDelta
from specchat.terminal import Styled, printable_with_tabs

DIM, NORMAL = "\x1b[2m", "\x1b[22m"


class ThinkingPrinter:
    def __init__(self) -> None:
        self._is_inside_line = False

    def on_event(self, event: Event) -> None:
        """Print a piece of a thought; any other text begins below it."""
        if isinstance(event, ThinkingDelta):
            self._print(event.text)
        elif getattr(event, "text", ""):
            self.end_line()

    def end_line(self) -> None:
        if self._is_inside_line:
            sys.stderr.write("\n\n")
            sys.stderr.flush()
        self._is_inside_line = False

    def _print(self, text: str) -> None:
        if not (text and sys.stderr.isatty()):
            return
        shown = printable_with_tabs(text)
        sys.stderr.write(shown if os.environ.get("NO_COLOR") else Styled(f"{DIM}{shown}{NORMAL}"))
        sys.stderr.flush()
        self._is_inside_line = True
