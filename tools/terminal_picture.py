"""A picture of a command as a person sees it: run on a terminal of its own, drawn as SVG.

python -m tools.terminal_picture docs/demo.svg specchat demo
"""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

TERMINAL_COLUMNS = 100
OVERWRITTEN_TEXT = re.compile(r"[^\n]*\r(?:\x1b\[2K)?(?!\n)")  # what a line showed before it was written over


def run_in_pty(command: list[str]) -> str:
    """Everything that the command writes, as it stands on the screen in the end."""
    output = io.BytesIO()

    def keep(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        output.write(data)
        return data

    os.environ |= {"COLUMNS": str(TERMINAL_COLUMNS), "TERM": "xterm-256color"}
    pty.spawn(command, keep)
    text = output.getvalue().decode(errors="replace").replace("\r\n", "\n")
    return OVERWRITTEN_TEXT.sub("", text)


def draw_svg(command: list[str], text: str) -> str:
    """The screen as SVG, with the command as its first line."""
    console = Console(record=True, width=TERMINAL_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(text.rstrip()))
    return console.export_svg(title=" ".join(command))


def main() -> None:
    """Draw the command that the arguments name into the file that stands first."""
    path, *command = sys.argv[1:]
    Path(path).write_text(draw_svg(command, run_in_pty(command)), encoding="utf-8")


if __name__ == "__main__":
    main()
