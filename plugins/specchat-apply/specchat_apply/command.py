"""`specchat apply`: merges a sketch from standard input into a file.

A sketch shows the lines that change, with gaps for those that stay; another program, or another model, wrote it. The
merge goes the way of an edit: diff, review, checks, exit codes, undo. As stdin is the sketch, a person answers on the
terminal itself.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import click

from specchat.app.edit_events import EditOrder
from specchat.app.edited_files import DiskFile
from specchat.chat.attachments import decode_bytes
from specchat.chat.request import MAX_ATTACHED_BYTES
from specchat.cli.completion import complete_files
from specchat.cli.edit import edit_options, run_order, will_write
from specchat.errors import UsageError

USAGE = 'usage: specchat apply FILE ["INSTRUCTION"] < sketch'
NEXT_STEPS = "next: show a line of the file above and below each change, or --plan, which says what is not certain"
TERMINAL = "/dev/tty"


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path), shell_complete=complete_files)
@click.argument("words", nargs=-1, metavar="[INSTRUCTION]...")
@edit_options
def apply(path: Path, words: tuple[str, ...], **options: Any) -> int:
    """Merge a sketch from standard input into a file.

    A sketch is code with gaps such as `# ... existing code ...`, a diff, or search/replace blocks. It is merged by
    structure where that is certain, else by the model; what it does not show stays. `specchat undo` takes it back.
    """
    sketch = _read_sketch()
    if terminal := open_terminal():
        sys.stdin = terminal
    order = EditOrder(
        " ".join(words), (DiskFile(path),), checks=options["checks"], writes=will_write(options),
        next_steps=NEXT_STEPS, sketch=sketch,
    )  # fmt: skip
    return run_order(order, options)


def open_terminal() -> TextIO | None:
    """Where a person types while stdin is the sketch; None without a terminal."""
    with suppress(OSError):
        if sys.stdout.isatty():
            return open(TERMINAL, encoding="utf-8")  # noqa: PTH123 (open as long as the process lives)
    return None


def _read_sketch() -> str:
    if sys.stdin.isatty():
        raise UsageError(f"the sketch is read from standard input; {USAGE}")
    text, _codec = decode_bytes(sys.stdin.buffer.read(MAX_ATTACHED_BYTES + 1), "the sketch")
    if not text.strip():
        raise UsageError(f"the sketch is empty; {USAGE}")
    return text
