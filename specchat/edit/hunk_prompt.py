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

HELP = """\
y take it   n leave it   e edit it   s split it   c comment and have it written again
a take this and all that follow   d leave this and all that follow   u back   q quit, nothing is written
"""


@dataclass(frozen=True)
class Means:
    """How a dialogue reaches the world. `read` gives "" when nobody is there; `edit` and `rewrite` None for nothing."""

    read: Callable[[str], str]
    show: Callable[[str], None]
    note: Callable[[str], None]
    edit: Callable[[str], str | None]
    rewrite: Callable[[int, int, str], str | None]


class Quit(Exception):  # noqa: N818 (nothing went wrong)
    """Nobody wants any of it."""


def ask_about(review: Review, means: Means, title: str) -> None:
    """Until every hunk is decided; raises Quit when the person leaves."""
    shown = None
    while (hunk := review.current) is not None:
        if hunk is not shown:
            means.show(
                f"{title} · hunk {review.place + 1}/{len(review.items)} · {_where(hunk)}\n{_drawn(review, hunk)}"
            )
            shown = hunk
        letter = means.read("[y,n,e,s,a,d,c,u,q,?] ").strip()[:1]
        if letter in ("", "q"):
            raise Quit
        KEYS.get(letter, _help)(review, means, hunk)


def _where(hunk: Hunk) -> str:
    return f"line {hunk.first + 1}" if hunk.end <= hunk.first + 1 else f"lines {hunk.first + 1}-{hunk.end}"


def _drawn(review: Review, hunk: Hunk) -> str:
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in hunk_lines(review.lines, hunk))


def _split(review: Review, means: Means, _hunk: Hunk) -> None:
    if not review.split():
        means.note("this is one change; it cannot be split")


def _back(review: Review, means: Means, _hunk: Hunk) -> None:
    if not review.back():
        means.note("this is where it began")


def _edit(review: Review, means: Means, hunk: Hunk) -> None:
    text = means.edit("".join(hunk.new_lines(review.lines)))
    if text is not None:
        review.take_instead(hunk.rewritten(review.lines, _ended(review, hunk, text)))


def _comment(review: Review, means: Means, hunk: Hunk) -> None:
    """Have the lines around it written again; lines of other hunks stay out of it."""
    wish = means.read("what should be different? ").strip()
    first, end = _surroundings(review, hunk)
    if not wish or first == end:
        return
    try:
        text = means.rewrite(first, end, wish)
    except SpecchatError as error:
        means.note(str(error))
        return
    if text is not None:
        review.offer_instead(Hunk((Change(first, tuple(review.lines[first:end]), tuple(split_lines(text))),)))


def _surroundings(review: Review, hunk: Hunk, around: int = 2) -> tuple[int, int]:
    free_first, free_end = review.free_lines()
    return max(free_first, hunk.first - around), min(free_end, hunk.end + around)


def _ended(review: Review, hunk: Hunk, text: str) -> list[str]:
    """Lines that end, unless they are the end of a text without a last newline."""
    lines = split_lines(text)
    is_last = hunk.end == len(review.lines) and not review.old.endswith("\n")
    if lines and not is_last and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _help(_review: Review, means: Means, _hunk: Hunk) -> None:
    means.note(HELP.rstrip("\n"))


KEYS: Mapping[str, Callable[[Review, Means, Hunk], None]] = {
    "y": lambda review, _means, _hunk: review.decide(is_taken=True),
    "n": lambda review, _means, _hunk: review.decide(is_taken=False),
    "a": lambda review, _means, _hunk: review.decide_rest(is_taken=True),
    "d": lambda review, _means, _hunk: review.decide_rest(is_taken=False),
    "e": _edit,
    "s": _split,
    "c": _comment,
    "u": _back,
}
