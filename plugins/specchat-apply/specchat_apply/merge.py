"""Sketches: code that shows the lines which change and has gaps ("# ... existing code ...") where the file stays.

The lines between two gaps are a segment. A segment takes the place of the lines of the file from its first to its last
line; so only these two have to be found with certainty: as lines of the file, in one place; as a statement with a name
that both texts have once; or as what is added beside such lines. What is not certain is no merge: `UnclearSketchError`
says why, and a model may decide, whose text is then held to the same sketch. Knows no model and no disk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from specchat.edit.answer_blocks import patched_text
from specchat.edit.answer_patches import changes_in
from specchat.edit.contract import Deviation, EditWarnings, KeptEdit, shown_line
from specchat.edit.hunks import Change, apply_changes, diff_lines, split_lines
from specchat.edit.postconditions import keep_blanks
from specchat.edit.sketch import (
    COMMENT_SIGN,
    ELLIPSIS,
    OMISSION,
    UNCHANGED,
    UnclearSketchError,
    without_fence,
)
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import parses
from specchat.errors import InputError
from specchat.syntax import Definition, definitions
from specchat.syntax.statements import Statement
from specchat_apply.sketch_places import SketchPlaces, fit_indent, indent_of

GAP_COMMENT = re.compile(rf"^\s*{COMMENT_SIGN}\s*[\[(]?(\.{{3}}|…)", re.MULTILINE)  # only a sketch says so much by it
BARE_GAP = re.compile(r"^\s*[\[({]?(\.{3}|…)[\])}]?,?\s*$", re.MULTILINE)
MAX_DROPPED_LINES = 4  # more lines than these are not meant to go because a gap marker is missing
MAX_LIKENESS = 0.6  # of the words of something added and of something that a gap hides
MIN_LIKENESS = 0.5  # of something under its old name and under a new one
COMMENT = re.compile(rf"\s*{COMMENT_SIGN}|\s*\*")
IMPORT_WORDS = frozenset(("import", "from", "as", "use", "static", "include", "const", "require"))


class StructureMerger:
    """Merges by structure (`specchat.edit.sketch.SketchMerger`)."""

    def merge(self, source: Source, sketch: str) -> str:
        """The file with what a sketch shows, see `merge_sketch`."""
        return merge_sketch(source, sketch)

    def keep(self, source: Source, text: str, sketch: str, is_valid: Callable[[str], bool]) -> KeptEdit:
        """The new text of a model, with what a sketch does not show put back where that leaves a valid text."""
        restored, foreign, beyond = keep_to_sketch(source, sketch, text)
        missing = missing_line(source, sketch, restored)
        missing = f"`{missing.strip()}` of the sketch" if missing else ""
        if not is_valid(restored):
            return KeptEdit(text, EditWarnings(_of_changes([*foreign, *beyond]), missing=missing))
        lines = source.text.split("\n")
        lost = [
            Deviation(each.first_line, lines[each.first_line - 1].strip())
            for each in lost_definitions(source, restored)
        ]
        return KeptEdit(restored, EditWarnings((*lost, *_of_changes(beyond)), _of_changes(foreign), missing=missing))


def _of_changes(changes: Iterable[Change]) -> tuple[Deviation, ...]:
    """The first lines of changes that are more than blanks."""
    sides = ((each.first + 1, *("".join(side).strip() for side in (each.old, each.new))) for each in changes)
    return tuple(
        Deviation(line, *(shown_line(side.partition("\n")[0]) for side in (old, new)))
        for line, old, new in sides
        if old or new
    )


def merge_sketch(source: Source, sketch: str) -> str:
    """The file with the lines that a sketch shows, or with the changes of a diff or of search/replace blocks.

    UnclearSketchError where that is not certain.
    """
    patched = patched_text(source, sketch.replace("\r\n", "\n"))
    if patched is None:
        return _Merge(source, sketch).text()
    if patched.patch_problem:
        raise UnclearSketchError(f"{source.name}: {patched.patch_problem}")
    return source.with_original_ending(patched.text)


def keep_to_sketch(source: Source, sketch: str, text: str) -> tuple[str, list[Change], list[Change]]:
    """A new text without the changes that have nothing to do with a sketch; these; and those that go beyond it.

    A change belongs to the sketch if all its lines are in there, or if it drops what the sketch drops.
    """
    shown = _shown_lines(source, sketch)
    follows, old, new = set(pairwise(["", *shown, ""])), split_lines(source.text), split_lines(text)
    kept, foreign, beyond, shift = list[Change](), list[Change](), list[Change](), 0
    for change in diff_lines(old, new):
        start, end = change.first + shift, change.first + shift + len(change.new)
        shift += len(change.new) - len(change.old)
        added, dropped = ([line.rstrip() for line in side if line.strip()] for side in (change.new, change.old))
        above = next((line.rstrip() for line in new[start - 1 :: -1] if line.strip()), "") if start else ""
        below = next((line.rstrip() for line in new[end:] if line.strip()), "")
        if not (set(added) & {*shown} or (dropped and not added and (above, below) in follows)):
            foreign.append(change)
            continue
        kept.append(change)
        is_outer = not added and "" in (above, below)  # beside a sketch that has no gap there
        is_framed = not added or (
            {(above, added[0]), (None, added[0])} & follows and {(added[-1], below), (added[-1], None)} & follows
        )
        is_shown = is_framed and set(added) <= {*shown}
        if is_outer or not is_shown or len(dropped) - len(added) > MAX_DROPPED_LINES:
            beyond.append(change)
    text = "".join(apply_changes(old, kept))
    return text, foreign, [*beyond, *_gutted(source, text, shown)]


def _gutted(source: Source, text: str, shown: Sequence[str | None]) -> Iterator[Change]:
    """The first lines of functions that have lost lines although the sketch shows nothing of them."""
    before = {each.qualified_name: each for each in definitions(source.text, source.language)}
    for each in definitions(text, source.language):
        all_lines = [line.rstrip() for line in text.split("\n")]
        lines, others = all_lines[each.first_line - 1 : each.last_line], all_lines[: each.first_line - 1]
        own, old = {*lines} - {*others, *all_lines[each.last_line :]}, before.get(each.qualified_name)
        if old and _words_of(text, each) < _words_of(source.text, old) and own.isdisjoint(shown):
            yield Change(old.first_line - 1, (lines[0],), ())


def lost_definitions(source: Source, text: str) -> list[Definition]:
    """What the file defines and a new text does not, not even in a similar form under another name.

    Who forgets a gap marker does not mean that a function goes.
    """
    before, after = (definitions(each, source.language) for each in (source.text, text))
    old, new = ({each.name for each in found} for found in (before, after))
    added = [_words_of(text, each) for each in after if each.name not in old]
    lost = [(each, _words_of(source.text, each)) for each in before if each.name not in new]
    return [each for each, words in lost if all(_likeness(words, other) < MIN_LIKENESS for other in added)]


def _words_of(text: str, definition: Definition) -> Counter[str]:
    lines = text.split("\n")[definition.first_line - 1 : definition.last_line]
    return Counter(re.findall(r"\w+", " ".join(lines)))


def missing_line(source: Source, sketch: str, text: str) -> str:
    """The first line that a sketch shows and a text does not have after those above it, "" for none."""
    lines = iter([line.rstrip() for line in text.split("\n")])
    return next((line for line in _shown_lines(source, sketch) if line and line not in lines), "")


def _shown_lines(source: Source, sketch: str) -> list[str | None]:
    """The lines of a sketch, in the indentation of the file, None for a gap; of a diff the new ones."""
    changes = changes_in(without_fence(sketch))
    shown = "\n".join(line for change in changes for line in ("...", *change.new)) or without_fence(sketch)
    lines = fit_indent(source.text, shown).split("\n")
    own = {line.strip() for line in source.text.split("\n")}
    is_gap = lambda line: _is_gap(line) and line not in own
    return [None if is_gap(line.strip()) else line.rstrip() for line in lines if line.strip()]


class _Merge:
    """A file, and a sketch whose lines have their places in it, as far as these are certain."""

    def __init__(self, source: Source, sketch: str) -> None:
        self._source, self._old_lines = source, source.text.split("\n")
        lines = fit_indent(source.text, without_fence(sketch)).split("\n")
        own = {line.strip() for line in self._old_lines}
        gaps = {number for number, line in enumerate(lines) if _is_gap(line)}
        if any(BARE_GAP.match(lines[number]) and lines[number].strip() in own for number in gaps):
            raise UnclearSketchError(f"{source.name}: the file has lines `...` of its own, so they are no gaps")
        gaps = {number for number in gaps if lines[number].strip() not in own}
        self._places = SketchPlaces(source, lines, gaps)
        self._old, self._new = self._places.old, self._places.new
        if not self._new:
            raise InputError(f"{source.name}: the sketch shows no line of it, only gaps")
        for place in self._places.gapped_additions:
            raise self._unclear(place, "the file has no definition of this name, so the gap in it stands for nothing")
        self._idle = list[int]()

    def text(self) -> str:
        changes, previous = list[Change](), -1
        for _segment, group in groupby(range(len(self._new)), self._places.segments.__getitem__):
            change, previous = self._replacement(list(group), previous)
            changes.append(change)
        text = "\n".join(apply_changes(self._old_lines, changes))
        if parses(self._source.text, self._source.language) and parses(text, self._source.language) is False:
            raise self._unclear(0, "the file would no longer parse")
        if lost := lost_definitions(self._source, text):
            raise self._unclear(0, f"`{lost[0].name}` would be lost, and the sketch shows no gap in its place")
        text = self._source.with_original_ending(keep_blanks(f"{self._source.text}\n", f"{text}\n"))
        if self._idle and text != self._source.text:
            raise self._unclear(
                self._idle[0], "the file has it already, and nothing changes there as it does elsewhere"
            )
        return text

    def _unclear(self, place: int, why: str) -> UnclearSketchError:
        line = self._new[place]
        shown = f"line {line.number + 1} of the sketch (`{line.text.strip()}`)"
        return UnclearSketchError(f"{self._source.name}: {shown}: {why}")

    def _replacement(self, places: Sequence[int], previous: int) -> tuple[Change, int]:
        """What a segment does to the file, and the last line that it replaces; `previous` is the last one before."""
        known = [place for place in places if self._places.is_known(place)]
        if not known:
            return self._insertion(places, previous)
        first = self._places.place_of(known[0])
        ended = max(place for place in places if self._places.is_known(place) or place in self._places.ends)
        last = self._places.ends[ended] if ended in self._places.ends else self._places.place_of(ended)
        if first <= previous or last < first:
            raise self._unclear(known[0], "in the file it does not follow what the sketch shows above it")
        is_hidden = first > previous + 1, self._next_known(places[-1]) > last + 1  # lines above and below the segment
        if known[0] > places[0] and is_hidden[0] and not self._is_addition(range(places[0], known[0])):
            raise self._unclear(places[0], "it may replace a line in the gap above it; show the line before it, too")
        if ended < places[-1] and is_hidden[1] and not self._is_addition(range(ended + 1, places[-1] + 1)):
            raise self._unclear(places[-1], "it may replace a line in the gap below it; show the line after it, too")
        if ended in self._places.cut_off:
            raise self._unclear(ended, "more lines follow in the file, and the gap below may stand for them or not")
        self._check_ends(places, first, last)
        self._check_dropped(places, first, last)
        if self._is_idle(places, first, last):
            self._idle.append(places[0])
        start, end = self._old[first].number, self._old[last].number + 1
        return Change(start, tuple(self._old_lines[start:end]), self._shown(places)), last

    def _next_known(self, place: int) -> int:
        """The next line of the file that the sketch shows in another segment."""
        following = (
            self._places.place_of(each) for each in range(place + 1, len(self._new)) if self._places.is_known(each)
        )
        return next(following, len(self._old))

    def _shown(self, places: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._places.lines[self._new[places[0]].number : self._new[places[-1]].number + 1])

    def _check_ends(self, places: Sequence[int], first: int, last: int) -> None:
        """Lines above the first shown line, without a gap there, may be meant to go, as may those below the last one.

        Not so those around a function or class that is all the sketch.
        """
        opens, closes = (self._new[place].number for place in (places[0], places[-1]))
        is_first = places[0] == 0 and all(gap > opens for gap in self._places.gaps)
        is_last = places[-1] == len(self._new) - 1 and all(gap < closes for gap in self._places.gaps)
        if is_first and first > 0 and not (is_last and self._places.is_named(places[0])):
            raise self._unclear(places[0], f"the sketch shows no gap above it, and the file has {first} lines there")
        if is_last and (count := len(self._old) - 1 - last) and not (is_first and places[-1] in self._places.ends):
            raise self._unclear(places[-1], f"the sketch shows no gap below it, and the file has {count} lines there")

    def _is_idle(self, places: Sequence[int], first: int, last: int) -> bool:
        """Whether a segment between gaps changes nothing, and does not show where the next one is."""
        lines, end = [self._new[place].text for place in places], places[-1] + 1
        is_header = end < len(self._new) and self._new[end].indent > self._new[places[-1]].indent
        is_inside = 0 < first and last + 1 < len(self._old)
        is_same = lines == [line.text for line in self._old[first : last + 1]]
        is_place_of_next = is_header and self._places.is_only(first) and re.search(r"\w", lines[-1])
        return is_inside and is_same and not is_place_of_next and bool(self._places.gaps)

    def _check_dropped(self, places: Sequence[int], first: int, last: int) -> None:
        old, new = [each.text for each in self._old[first : last + 1]], [self._new[each].text for each in places]
        nearer = [
            *(old[start:] for start in range(1, len(old)) if old[start] == old[0] == new[0]),
            *(old[: end + 1] for end in range(len(old) - 1) if old[end] == old[-1] == new[-1]),
        ]
        if nearer and _dropped_count(old, new) > min(_dropped_count(each, new) for each in nearer):
            raise self._unclear(places[0], "it or the last line below it is in the file more than once")
        for change in diff_lines(old, new):
            if len(change.old) - len(change.new) > MAX_DROPPED_LINES:
                line = self._old[first + change.first]
                what = f"line {line.number + 1} of the file, `{line.text.strip()}`, and {len(change.old) - 1} more"
                raise self._unclear(places[0], f"{what} would go, and the sketch shows no gap there")

    def _insertion(self, places: Sequence[int], previous: int) -> tuple[Change, int]:
        """A segment of which the file has no line: definitions after a gap that ends a block."""
        indent, end = self._new[places[0]].indent, len(self._old) - 1
        header = self._places.header(places[0])
        if header is not None:
            end = self._places.block_end(header)
        is_certain = (header is None) == (indent == 0) and self._ends_block(places[-1], indent) and end >= previous
        is_main = header is None and bool(re.search(r"^if __name__\b", self._source.text, re.MULTILINE))
        if not is_certain or is_main or not self._is_addition(places, are_imports_meant=False):
            raise self._unclear(places[0], "nothing says where it belongs; show a line beside it that the file has")
        blank = ("",) * (2 if self._source.language == "python" and not indent else 1)
        return Change(self._old[end].number + 1, (), (*blank, *self._shown(places))), end

    def _ends_block(self, place: int, indent: int) -> bool:
        """Whether nothing of the same block follows a shown line, and no gap that may stand for something of it."""
        end = self._new[place + 1].number if place + 1 < len(self._new) else len(self._places.lines)
        gaps = (self._places.lines[number] for number in self._places.gaps if self._new[place].number < number < end)
        is_over = place + 1 == len(self._new) or self._new[place + 1].indent < indent
        return is_over and all(indent_of(gap) < indent for gap in gaps)

    def _is_addition(self, places: Sequence[int], *, are_imports_meant: bool = True) -> bool:
        """Whether these lines are whole definitions or imports, and no other versions of what the gaps hide."""
        numbers = range(self._new[places[0]].number + 1, self._new[places[-1]].number + 2)
        shown = self._places.new_statements
        inside = [each for each in shown if each.line in numbers and each.last_line in numbers]
        outer = [each for each in inside if each.owner < 0 or shown[each.owner].line not in numbers]
        covered = {line for each in outer for line in range(each.line, each.last_line + 1)}
        lines = (self._new[place] for place in places)
        is_covered = all(line.number + 1 in covered or COMMENT.match(line.text) for line in lines)
        is_new = (each.is_definition or (each.is_import and are_imports_meant) for each in outer)
        return bool(outer) and is_covered and all(is_new) and not any(map(self._has_version, outer))

    def _has_version(self, added: Statement) -> bool:
        """Whether a statement that the sketch does not show is like one that it adds."""
        if added.name in self._places.defined:
            return True
        shown = {line.text for line in self._new}
        words = Counter(set(added.words) - IMPORT_WORDS)
        for each in self._places.old_statements:
            is_hidden = each.kind == added.kind and each.text.split("\n")[0].rstrip() not in shown
            if is_hidden and _likeness(words, Counter(set(each.words) - IMPORT_WORDS)) > MAX_LIKENESS:
                return True
        return False


def _dropped_count(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(len(change.old) for change in diff_lines(old, new))


def _likeness(words: Counter[str], others: Counter[str]) -> float:
    return 2 * (words & others).total() / max(1, words.total() + others.total())


def _is_gap(line: str) -> bool:
    return any(pattern.match(line) for pattern in (BARE_GAP, GAP_COMMENT, OMISSION, UNCHANGED, ELLIPSIS))
