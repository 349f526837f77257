"""The review of an edit on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from specchat.edit.edit_task import Edited
from specchat.edit.hunk_prompt import Means
from specchat.edit.hunk_review import decide
from specchat.edit.review_state import Review
from specchat.edit.source_text import Source
from specchat.edit.terminal_review import answer_to, coloured, in_editor, is_coloured

Rewrite = Callable[[int, int, str], str | None]


def review(source: Source, edited: Edited, check: Callable[[str], None], rewrite: Rewrite) -> Review:
    """What the person takes, all decided and checked again; NotTakenError when the person leaves."""
    ending = Path(source.name).suffix
    means = Means(answer_to, _show, _note, lambda text: in_editor(text, ending, _note), rewrite)
    return decide(source, edited.text, edited.flags, check, means)


def _note(message: str) -> None:
    print(message, file=sys.stderr)


def _show(hunk: str) -> None:
    sys.stdout.write(coloured(hunk) if is_coloured() else hunk)
    sys.stdout.flush()
