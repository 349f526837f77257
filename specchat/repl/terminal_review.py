"""The terminal side of a review: hunks on stdout, prompts on stderr, and the user's own text editor."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from specchat.terminal import Styled, printable_with_tabs

COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m"}
RESET = "\x1b[0m"


def wants_colours() -> bool:
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def colour_hunk(hunk: str) -> Styled:
    title, *lines = printable_with_tabs(hunk).split("\n")
    coloured = (f"{COLOURS[line[0]]}{line}{RESET}" if line[:1] in COLOURS else line for line in lines)
    return Styled("\n".join([title, *coloured]))


def prompt_user(question: str) -> str:
    """The line that the user types; "" at the end of input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline()


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
