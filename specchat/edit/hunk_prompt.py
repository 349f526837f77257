"""The dialogue of a review, line by line: a hunk is shown, a letter is typed, as in `git add -p`.

Knows how to talk and not with whom: reading, writing, the editor and the model are given to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specchat.edit.hunks import Change, Hunk, split_lines
from specchat.edit.patch import hunk_lines
from specchat.edit.review_state import Review
from specchat.errors import SpecchatError

KEY_HELP = """\
y take it   n leave it   e edit it   s split it   c comment and have it written again
a take this and all that follow   d leave this and all that follow   u back   q quit, nothing is written
"""


@dataclass(frozen=True)
class ReviewUI:
    """How a dialogue reaches the world. `read` gives "" when nobody is there; `edit` and `rewrite` None for nothing."""

    read_key: Callable[[str], str]
    show_hunk: Callable[[str], None]
    show_message: Callable[[str], None]
    edit_text: Callable[[str], str | None]
    rewrite_lines: Callable[[int, int, str], str | None]


class ReviewQuit(Exception):  # noqa: N818 (nothing went wrong)
    """Nobody wants any of it."""


def review_hunks(review: Review, ui: ReviewUI, title: str) -> None:
    """Until every hunk is decided; raises Quit when the person leaves."""
    shown = None
    while (hunk := review.current_hunk) is not None:
        if hunk is not shown:
            ui.show_hunk(
                f"{title} · hunk {review.index + 1}/{len(review.decisions)} · {_line_range(hunk)}\n{_format_hunk(review, hunk)}"
            )
            shown = hunk
        letter = ui.read_key("[y,n,e,s,a,d,c,u,q,?] ").strip()[:1]
        if letter in ("", "q"):
            raise ReviewQuit
        KEY_ACTIONS.get(letter, _show_help)(review, ui, hunk)


def _line_range(hunk: Hunk) -> str:
    return f"line {hunk.first + 1}" if hunk.end <= hunk.first + 1 else f"lines {hunk.first + 1}-{hunk.end}"


def _format_hunk(review: Review, hunk: Hunk) -> str:
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in hunk_lines(review.old_lines, hunk))


def _split_hunk(review: Review, means: ReviewUI, _hunk: Hunk) -> None:
    if not review.split():
        means.show_message("this is one change; it cannot be split")


def _undo_decision(review: Review, means: ReviewUI, _hunk: Hunk) -> None:
    if not review.undo():
        means.show_message("this is where it began")


def _edit_hunk(review: Review, means: ReviewUI, hunk: Hunk) -> None:
    text = means.edit_text("".join(hunk.new_lines(review.old_lines)))
    if text is not None:
        review.replace_and_accept(hunk.with_new_lines(review.old_lines, _with_final_newline(review, hunk, text)))


def _rewrite_with_comment(review: Review, means: ReviewUI, hunk: Hunk) -> None:
    """Have the lines around it written again; lines of other hunks stay out of it."""
    wish = means.read_key("what should be different? ").strip()
    first, end = _context_range(review, hunk)
    if not wish or first == end:
        return
    try:
        text = means.rewrite_lines(first, end, wish)
    except SpecchatError as error:
        means.show_message(str(error))
        return
    if text is not None:
        review.replace_current(Hunk((Change(first, tuple(review.old_lines[first:end]), tuple(split_lines(text))),)))


def _context_range(review: Review, hunk: Hunk, context_lines: int = 2) -> tuple[int, int]:
    free_first, free_end = review.untouched_range()
    return max(free_first, hunk.first - context_lines), min(free_end, hunk.end + context_lines)


def _with_final_newline(review: Review, hunk: Hunk, text: str) -> list[str]:
    """Lines that end, unless they are the end of a text without a last newline."""
    lines = split_lines(text)
    is_last = hunk.end == len(review.old_lines) and not review.old_text.endswith("\n")
    if lines and not is_last and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _show_help(_review: Review, means: ReviewUI, _hunk: Hunk) -> None:
    means.show_message(KEY_HELP.rstrip("\n"))


KEY_ACTIONS: Mapping[str, Callable[[Review, ReviewUI, Hunk], None]] = {
    "y": lambda review, _means, _hunk: review.decide(is_accepted=True),
    "n": lambda review, _means, _hunk: review.decide(is_accepted=False),
    "a": lambda review, _means, _hunk: review.decide_remaining(is_accepted=True),
    "d": lambda review, _means, _hunk: review.decide_remaining(is_accepted=False),
    "e": _edit_hunk,
    "s": _split_hunk,
    "c": _rewrite_with_comment,
    "u": _undo_decision,
}
