"""The review of an edit on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from specchat.edit.edit_task import EditResult
from specchat.edit.hunk_prompt import Review, ReviewUI, review_edit
from specchat.edit.source_text import Source
from specchat.edit.terminal_review import colour_hunk, edit_in_editor, prompt_user, wants_colours

RewriteHunk = Callable[[int, int, str], str | None]


def review_on_terminal(
    source: Source, result: EditResult, check: Callable[[str], None], rewrite: RewriteHunk
) -> Review:
    """The reviewed edit, validated again. DeclinedError when the user quits."""
    suffix = Path(source.name).suffix
    ui = ReviewUI(
        prompt_user, _print_hunk, _print_note, lambda text: edit_in_editor(text, suffix, _print_note), rewrite
    )
    return review_edit(source, result.text, result.warnings, check, ui)


def _print_note(message: str) -> None:
    print(message, file=sys.stderr)


def _print_hunk(hunk: str) -> None:
    sys.stdout.write(colour_hunk(hunk) if wants_colours() else hunk)
    sys.stdout.flush()
