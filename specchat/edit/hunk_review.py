"""Reviews a new text hunk by hunk until the accepted part passes the checks. Knows no screen, see `ReviewUI`."""

from __future__ import annotations

from collections.abc import Callable

from specchat.edit.answer_check import EditWarnings
from specchat.edit.hunk_prompt import ReviewQuit, ReviewUI, review_hunks
from specchat.edit.hunks import Hunk, diff_hunks
from specchat.edit.review_state import Review
from specchat.edit.source_text import Source
from specchat.errors import BrokenEditError, DeclinedError


def review_edit(
    source: Source, text: str, edit_warnings: EditWarnings, check: Callable[[str], None], ui: ReviewUI
) -> Review:
    """The completed review; DeclinedError when the user quits."""
    review = Review(source.text, _ordered_hunks(source, text, edit_warnings))
    if edit_warnings.summary:
        ui.show_message(f"look closely: {edit_warnings.summary}")
    while True:
        try:
            review_hunks(review, ui, source.name)
        except ReviewQuit:
            raise DeclinedError(f"{source.name}: left as it was") from None
        if not review.accepted_hunks or review.text == source.text:
            return review
        try:
            check(review.text)
        except BrokenEditError as broken:
            ui.show_message(f"{broken}\nthe accepted text fails the checks; decide on the last hunk again")
            review.undo()
        else:
            return review


def _ordered_hunks(source: Source, text: str, edit_warnings: EditWarnings) -> list[Hunk]:
    """Hunks that lose a comment first, then the others in file order."""
    lost = [line for comment in edit_warnings.lost_comments for line in comment.splitlines() if line.strip()]

    def loses(hunk: Hunk) -> bool:
        removed = "".join(line for change in hunk.changes for line in change.old)
        return any(line in removed for line in lost)

    return sorted(diff_hunks(source.text, text), key=lambda hunk: not loses(hunk))
