"""Copy text to the clipboard: through the terminal (OSC 52), and through the clipboard programs of the system.

A terminal does not report success, tmux swallows the sequence, and over ssh there is no program; so every way is tried.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence

from textual.app import App

PROGRAM_TIMEOUT_SECONDS = 2.0
CLIPBOARD_PROGRAMS: Mapping[str, str] = {  # and the variable of the environment that each needs
    "tmux load-buffer -w -": "TMUX",
    "wl-copy": "WAYLAND_DISPLAY",
    "xclip -selection clipboard": "DISPLAY",
    "xsel --clipboard --input": "DISPLAY",
    "pbcopy": "",
}


def copy(app: App[None], text: str) -> None:
    """Copy, and say so."""
    notice = f"{len(text):,} characters copied ({copy_text(app, text)})" if text else "nothing to copy"
    app.notify(notice, markup=False)


def copy_text(app: App[None], text: str) -> str:
    """Copy; returns the names of the ways that worked, for a notice."""
    app.copy_to_clipboard(text)
    usable = (command.split() for command, needs in CLIPBOARD_PROGRAMS.items() if not needs or os.environ.get(needs))
    return ", ".join(["terminal", *(command[0] for command in usable if _pipe_to_program(command, text))])


def _pipe_to_program(command: Sequence[str], text: str) -> bool:
    try:
        done = subprocess.run(
            command, input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PROGRAM_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
