"""A new text, decided on hunk by hunk until what is taken can be written. Knows no screen: `Means` are given to it."""

from __future__ import annotations

from collections.abc import Callable

from specchat.edit.answer_check import Flags
from specchat.edit.hunk_prompt import Means, Quit, ask_about
from specchat.edit.hunks import Hunk, hunks_between
from specchat.edit.review_state import Review
from specchat.edit.source_text import Source
from specchat.errors import BrokenEditError, NotTakenError


def decide(source: Source, text: str, flags: Flags, check: Callable[[str], None], means: Means) -> Review:
    """What the person takes, all decided and checked again; NotTakenError when the person leaves."""
    review = Review(source.text, _in_order(source, text, flags))
    if flags.words:
        means.note(f"look closely: {flags.words}")
    while True:
        try:
            ask_about(review, means, source.name)
        except Quit:
            raise NotTakenError(f"{source.name}: left as it was") from None
        if not review.taken or review.text == source.text:
            return review
        try:
            check(review.text)
        except BrokenEditError as broken:
            means.note(f"{broken}\nthis cannot be written as it is; decide on the last hunk again")
            review.back()
        else:
            return review


def _in_order(source: Source, text: str, flags: Flags) -> list[Hunk]:
    """The hunks that lose a comment first, then the others as they stand."""
    lost = [line for comment in flags.lost_comments for line in comment.splitlines() if line.strip()]

    def loses(hunk: Hunk) -> bool:
        gone = "".join(line for change in hunk.changes for line in change.old)
        return any(line in gone for line in lost)

    return sorted(hunks_between(source.text, text), key=lambda hunk: not loses(hunk))
