"""The review of hunks: their decisions, each of which can be undone, and the dialogue that asks for them.

The dialogue shows a hunk and reads a key, as in `git add -p`, until the accepted part passes the checks. Input, output
and the text editor are callbacks of `EditUI`. Knows no screen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from threading import Event as Flag

from specchat.app.consent import Answer, Decision
from specchat.app.edit_events import Proposed
from specchat.chat.events import Event
from specchat.edit.edit_turn import ignore_event, result_of
from specchat.edit.hunks import Change, Hunk, apply_hunks, diff_hunks, hunk_lines, split_lines
from specchat.errors import BrokenEditError, DeclinedError, SpecchatError

REWRITE_CONTEXT_LINES = 2  # around the hunk, for a rewrite
HUNK_QUESTION = "take this change? y yes, n no, a all, q quit, ? more [y,n,e,s,a,d,c,u,q,?] "
KEY_HELP = """\
y accept   n reject   e edit   s split   c comment and have the model rewrite it
a accept this and all that follow   d reject this and all that follow   u undo   q quit, nothing is written
"""


@dataclass(frozen=True)
class EditUI:
    """The callbacks of a front end during an edit in the hands of a person.

    `read_input` returns a key or a line, "" when there is no input; `edit_text` takes a text and a file suffix and
    returns the changed text, None when the user cancels; `show_progress` gets progress lines; `on_event` gets the
    events of answers.
    """

    read_input: Callable[[str], str]
    show_hunk: Callable[[str], None]
    show_message: Callable[[str], None]
    edit_text: Callable[[str, str], str | None]
    show_progress: Callable[[str], None]
    on_event: Callable[[Event], None] = ignore_event
    cancelled: Flag = field(default_factory=Flag)
    show_rejected: Callable[[str], None] = lambda _diff: None  # what the model wrote and cannot be taken, as a diff


@dataclass(frozen=True)
class HunkDecision:
    hunk: Hunk
    is_accepted: bool | None = None


class Review:
    """Goes through hunks in the given order. Every step can be undone, including splitting and rewriting."""

    def __init__(self, old: str, hunks: Sequence[Hunk]) -> None:
        self.old_text, self.old_lines = old, split_lines(old)
        self.decisions = tuple(HunkDecision(hunk) for hunk in hunks)
        self._undo_stack: list[tuple[HunkDecision, ...]] = []

    @property
    def index(self) -> int:
        is_open = (index for index, each in enumerate(self.decisions) if each.is_accepted is None)
        return next(is_open, len(self.decisions))

    @property
    def current_hunk(self) -> Hunk | None:
        return self.decisions[self.index].hunk if self.index < len(self.decisions) else None

    @property
    def accepted_hunks(self) -> list[Hunk]:
        hunks = (each.hunk for each in self.decisions if each.is_accepted)
        return sorted(hunks, key=lambda hunk: (hunk.first, hunk.end))

    @property
    def text(self) -> str:
        return apply_hunks(self.old_text, self.accepted_hunks)

    def decide(self, *, is_accepted: bool) -> None:
        self._replace_decision(replace(self.decisions[self.index], is_accepted=is_accepted))

    def decide_remaining(self, *, is_accepted: bool) -> None:
        self._undo_stack.append(self.decisions)
        self.decisions = tuple(
            replace(each, is_accepted=is_accepted) if each.is_accepted is None else each for each in self.decisions
        )

    def split(self) -> bool:
        parts = self.decisions[self.index].hunk.split()
        if len(parts) > 1:
            self._replace_decision(*map(HunkDecision, parts))
        return len(parts) > 1

    def replace_current(self, hunk: Hunk, *, is_accepted: bool | None = None) -> None:
        self._replace_decision(HunkDecision(hunk, is_accepted))

    def undo(self) -> bool:
        """Undo the last step; False when there is none."""
        if self._undo_stack:
            self.decisions = self._undo_stack.pop()
            return True
        return False

    def untouched_range(self) -> tuple[int, int]:
        """The old lines around the current hunk that no other hunk touches: first and end, from 0."""
        current = self.decisions[self.index].hunk
        others = [each.hunk for each in self.decisions if each.hunk != current]
        first = max((hunk.end for hunk in others if hunk.end <= current.first), default=0)
        end = min((hunk.first for hunk in others if hunk.first >= current.end), default=len(self.old_lines))
        return first, end

    def _replace_decision(self, *new_decisions: HunkDecision) -> None:
        """Put these in the place of the current one."""
        self._undo_stack.append(self.decisions)
        self.decisions = (*self.decisions[: self.index], *new_decisions, *self.decisions[self.index + 1 :])


class HunkDialogue:
    """Goes through the hunks of a proposed text with a person; `on_event` gets the events of answers to comments."""

    def __init__(self, proposed: Proposed, ui: EditUI, on_event: Callable[[Event], None]) -> None:
        self._proposed, self._ui, self._on_event = proposed, ui, on_event
        self._review = Review(proposed.source.text, _ordered_hunks(proposed))

    def decide(self) -> Decision:
        """Run until the accepted part passes the checks; DeclinedError when the person quits."""
        proposed, review = self._proposed, self._review
        if proposed.warning:
            self._ui.show_message(f"look closely: {proposed.warning}")
        while True:
            self._ask_for_all()
            try:
                if review.accepted_hunks and review.text != review.old_text:
                    proposed.check(review.text)
                return Decision(Answer.ONCE, review.text, len(review.accepted_hunks), len(review.decisions))
            except BrokenEditError as broken:
                self._ui.show_message(f"{broken}\nthe accepted text fails the checks; decide on the last hunk again")
                review.undo()

    def _ask_for_all(self) -> None:
        review, shown, title = self._review, None, self._proposed.path
        while (hunk := review.current_hunk) is not None:
            if hunk is not shown:
                lines = f"line {hunk.first + 1}" if hunk.end <= hunk.first + 1 else f"lines {hunk.first + 1}-{hunk.end}"
                heading = f"{title} · hunk {review.index + 1}/{len(review.decisions)} · {lines}"
                shown_lines = (line.removesuffix("\n") for line in hunk_lines(review.old_lines, hunk))
                self._ui.show_hunk("\n".join([heading, *shown_lines, ""]))
                shown = hunk
            letter = self._ui.read_input(HUNK_QUESTION).strip()[:1]
            if letter in ("", "q"):
                raise DeclinedError(f"{title}: left as it was")
            self._run_key(letter, hunk)

    def _run_key(self, letter: str, hunk: Hunk) -> None:
        review, show_message = self._review, self._ui.show_message
        match letter:
            case "y" | "n":
                review.decide(is_accepted=letter == "y")
            case "a" | "d":
                review.decide_remaining(is_accepted=letter == "a")
            case "e":
                text = self._ui.edit_text(
                    "".join(hunk.new_lines(review.old_lines)), PurePath(self._proposed.path).suffix
                )
                if text is not None:
                    lines = _with_final_newline(review, hunk, text)
                    review.replace_current(hunk.with_new_lines(review.old_lines, lines), is_accepted=True)
            case "s":
                if not review.split():
                    show_message("this is a single change; it cannot be split")
            case "c":
                self._rewrite_with_comment(hunk)
            case "u":
                if not review.undo():
                    show_message("there is nothing to undo")
            case _:
                show_message(KEY_HELP.rstrip("\n"))

    def _rewrite_with_comment(self, hunk: Hunk) -> None:
        """Have the lines around the hunk rewritten, without those of other hunks."""
        review, comment = self._review, self._ui.read_input("what should be different? ").strip()
        free_first, free_end = review.untouched_range()
        first = max(free_first, hunk.first - REWRITE_CONTEXT_LINES)
        end = min(free_end, hunk.end + REWRITE_CONTEXT_LINES)
        if not comment or first == end:
            return
        try:
            text = result_of(self._proposed.rewrite(first, end, comment), self._on_event)
        except SpecchatError as error:
            self._ui.show_message(str(error))
        else:
            review.replace_current(Hunk((Change(first, tuple(review.old_lines[first:end]), tuple(split_lines(text))),)))


def _with_final_newline(review: Review, hunk: Hunk, text: str) -> list[str]:
    """The lines of an edited hunk, the last one with a newline unless the text ends without one."""
    lines = split_lines(text)
    is_last = hunk.end == len(review.old_lines) and not review.old_text.endswith("\n")
    if lines and not is_last and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _ordered_hunks(proposed: Proposed) -> list[Hunk]:
    """Hunks with changes that nothing asks for first, then the others in file order."""
    deviating = [each.line - 1 for each in proposed.result.warnings.deviations]

    def deviates(hunk: Hunk) -> bool:
        return any(change.first <= line < change.end for change in hunk.changes for line in deviating)

    return sorted(diff_hunks(proposed.source.text, proposed.new), key=lambda hunk: not deviates(hunk))
