"""A line about what takes long. Knows no answer and no download."""

import sys
import time
from dataclasses import dataclass

from specchat.own_text import translated
from specchat.terminal import Styled, can_redraw, printable_with_tabs, write_line

LINE_SECONDS = 10.0  # between two lines where they cannot be drawn over
ERASE_LINE = "\r\x1b[2K"


@dataclass
class TemporaryLine:
    """A line on stderr while the user waits, which the next one replaces; where it cannot, a line now and then."""

    line: str = ""
    printed_at: float = 0.0

    def show(self, line: str, first_line: str = "") -> None:
        """A `first_line` begins something else, and is printed at once where nothing can be replaced."""
        line, first_line = translated(line), translated(first_line)
        if line == self.line:
            return
        self.line = line
        if can_redraw(sys.stderr):
            sys.stderr.write(Styled(f"{ERASE_LINE}{printable_with_tabs(line)}"))
            sys.stderr.flush()
        elif line and not (self.printed_at or first_line):
            self.printed_at = time.monotonic()  # what is over soon needs no line
        elif first_line or (line and time.monotonic() - self.printed_at >= LINE_SECONDS):
            self.printed_at = time.monotonic()
            write_line(first_line or line, sys.stderr)

    def erase(self) -> None:
        self.show("")
