"""Which lines of a file the lines of a sketch are.

A line is known when it can be one line of the file alone: by its text and that of its neighbours, between the known
lines before and after it. A statement is known by its name, if both texts have it once; it may have changed. Lines are
counted without the blank ones: a *place* is such a number, of the sketch or of the file. Knows no model and no disk.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from specchat.edit.source_text import Source, fit_tabs
from specchat.syntax import definitions
from specchat.syntax.statements import MARKERS, Statement, statements

MAX_ROUNDS = 6


@dataclass(frozen=True)
class SolidLine:
    """A line that is not blank: its number in the text, from 0."""

    number: int
    text: str

    @property
    def indent(self) -> int:
        return indent_of(self.text)


@dataclass(frozen=True)
class _Named:
    """The places of a statement: its first line, that of its name below its decorators, and its last one."""

    first: int
    start: int
    last: int
    is_definition: bool
    is_outer: bool


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def solid_lines(lines: Sequence[str]) -> list[SolidLine]:
    return [SolidLine(number, line.rstrip()) for number, line in enumerate(lines) if line.strip()]


class SketchPlaces:
    """The lines of a sketch, whose gaps are `gaps`, by their numbers, and the lines of the file that they are.

    `ends` are the last lines of statements that the sketch shows as a whole, with the last ones in the file; `cut_off`
    those of them at which the statement goes on in the file, and that a gap follows.
    """

    def __init__(self, source: Source, lines: Sequence[str], gaps: Collection[int]) -> None:
        self.lines, self.gaps, self._language = lines, sorted(gaps), source.language
        self.old = solid_lines(source.text.split("\n"))
        self.new = [each for each in solid_lines(lines) if each.number not in gaps]
        self.segments = [sum(gap < line.number for gap in self.gaps) for line in self.new]
        self.old_statements = statements(source.text, source.language)
        self.defined = {each.name for each in definitions(source.text, source.language)}
        self.ends, self.cut_off = dict[int, int](), set[int]()
        self._starts, self._matched = dict[int, int](), dict[int, int]()
        self._added = set[int]()  # the lines of definitions that the file has not: what they share with it is a copy
        self.gapped_additions = list[int]()  # the first lines of such with a gap in them
        self._places_of_text: defaultdict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(self.old):
            self._places_of_text[line.text].append(place)
        self._pair_named()
        self._match_lines()

    @cached_property
    def new_statements(self) -> list[Statement]:
        """The statements of the sketch, with gaps that parse: an empty body is an error in Python."""
        fill = "..." if self._language == "python" else ""
        shown = list(self.lines)
        for number in self.gaps:
            shown[number] = " " * self._gap_indent(number) + fill
        return statements("\n".join(shown), self._language)

    def is_known(self, place: int) -> bool:
        return place in self._matched or place in self._starts

    def is_named(self, place: int) -> bool:
        """Whether a statement begins here that the file has under the same name."""
        return place in self._starts

    def is_only(self, old_place: int) -> bool:
        """Whether no other line of the file is like this one."""
        return len(self._places_of_text[self.old[old_place].text]) == 1

    def place_of(self, place: int) -> int:
        """The line of the file that a known line is."""
        return self._matched[place] if place in self._matched else self._starts[place]

    def header(self, place: int) -> int | None:
        """The line of the file that is the innermost known one around a shown line, by indentation."""
        indent = self.new[place].indent
        for outer in range(place - 1, -1, -1):
            if self.new[outer].indent < indent:
                indent = self.new[outer].indent
                if self.is_known(outer):
                    return self.place_of(outer)
        return None

    def block_end(self, header: int) -> int:
        """The last line of the file that is indented more than this one, as all between are."""
        end = header
        while end + 1 < len(self.old) and self.old[end + 1].indent > self.old[header].indent:
            end += 1
        return end

    def _pair_named(self) -> None:
        old, new = _named(self.old_statements, self.old), _named(self.new_statements, self.new)
        for path, own in new.items():
            if own.is_definition and path[-1] not in self.defined:
                self._added.update(range(own.first, own.last + 1))
                self.gapped_additions += [own.first] if self._has_gap(own) else []
            named = old.get(path)
            if named is None and own.is_definition and own.is_outer:  # its class may not be shown
                found = [each for key, each in old.items() if key[-1] == path[-1] and each.is_definition]
                named = found[0] if len(found) == 1 else None
            if named and self.new[own.start].indent == self.old[named.start].indent:
                self._pair(own, named)

    def _pair(self, own: _Named, named: _Named) -> None:
        self._starts[own.start] = named.start
        if named.first == named.start or self.new[own.first].text == self.old[named.first].text:
            self._starts[own.first] = named.first
        if self._has_gap(own):
            return
        self.ends[own.last] = named.last
        body = {line.text for line in self.old[named.start + 1 : named.last]}
        is_above_gap = own.last + 1 == len(self.new) or self.segments[own.last + 1] != self.segments[own.last]
        if self.gaps and is_above_gap and self.new[own.last].text in body - {self.old[named.last].text}:
            self.cut_off.add(own.last)

    def _has_gap(self, own: _Named) -> bool:
        """Whether a shown statement has a gap in it, or after its last line where its body may go on."""
        first, last, end = self.new[own.start], self.new[own.last], len(self.lines)
        if own.last + 1 < len(self.new):
            end = self.new[own.last + 1].number
        after = (self._gap_indent(gap) > first.indent or first == last for gap in self.gaps if last.number < gap < end)
        return any(after) or any(first.number < gap < last.number for gap in self.gaps)

    def _gap_indent(self, number: int) -> int:
        """The indentation of a gap, or of the line below it, which may be deeper."""
        following = next((each.indent for each in self.new if each.number > number), 0)
        return max(indent_of(self.lines[number]), following)

    def _match_lines(self) -> None:
        """Find the lines whose place is certain; each makes others certain."""
        open_places = set(range(len(self.new))) - self._added
        for _round in range(MAX_ROUNDS):
            places = {place: self._sure_place(place) for place in sorted(open_places)}
            found = {place: old for place, old in places.items() if old is not None}
            self._matched |= found
            open_places -= {*found}
            while crossing := self._crossing():
                for place in crossing:
                    del self._matched[place]
            if not found:
                break

    def _crossing(self) -> set[int]:
        """Of the lines that stand in another order in the file, those that stand against most others."""
        pairs = sorted(self._matched.items())
        if all(one[1] < other[1] for one, other in pairwise(pairs)):
            return set()
        counts = {
            place: sum((one < place) != (old_one < old) for one, old_one in pairs if one != place)
            for place, old in pairs
        }
        return {place for place, count in counts.items() if count == max(counts.values())}

    def _sure_place(self, place: int) -> int | None:
        """The only line of the file that a shown line can be between those that are known."""
        known = [*self._matched, *self._starts]
        low = max((self.place_of(each) for each in known if each < place), default=-1)
        high = min((self.place_of(each) for each in known if each > place), default=len(self.old))
        found = [old for old in self._places_of_text[self.new[place].text] if low < old < high]
        runs = {old: self._run(place, old) for old in found}
        best = max(runs, key=lambda old: runs[old][1] - runs[old][0], default=None)
        if best is None:
            return None
        first, last = runs.pop(best)  # at each other one, fewer of these lines are the same, and no others
        return (
            best if all(first <= run[0] and run[1] <= last and run != (first, last) for run in runs.values()) else None
        )

    def _run(self, place: int, old: int) -> tuple[int, int]:
        """The first and the last of the lines around one in its segment that are the same in the file."""
        first, last = place, place
        while first and self._is_same(first - 1, old - place + first - 1, place):
            first -= 1
        while self._is_same(last + 1, old - place + last + 1, place):
            last += 1
        return first, last

    def _is_same(self, new: int, old: int, within: int) -> bool:
        if new >= len(self.new) or not 0 <= old < len(self.old) or self.segments[new] != self.segments[within]:
            return False
        return self.new[new].text == self.old[old].text


def _named(found: Sequence[Statement], lines: Sequence[SolidLine]) -> dict[tuple[str, ...], _Named]:
    """The places of each statement that no other one has the name of, by the names around it."""
    places = {each.number: place for place, each in enumerate(lines)}
    paths, named = list[tuple[str, ...]](), dict[tuple[str, ...], _Named]()
    marked = {each.owner: each.last_line for each in found if each.kind in MARKERS}  # the last decorator
    for index, each in enumerate(found):
        paths.append((*(paths[each.owner] if each.owner >= 0 else ()), each.name))
        solid = [places[number] for number in range(each.line - 1, each.last_line) if number in places]
        start = places.get(marked.get(index, each.line - 1))
        if each.name and solid and start is not None:
            named[paths[-1]] = _Named(solid[0], start, solid[-1], each.is_definition, each.owner < 0)
    counts = Counter(paths)
    return {path: each for path, each in named.items() if counts[path] == 1}


def fit_indent(old: str, sketch: str) -> str:
    """A sketch with the tabs of the file, and moved to the indentation of the lines that only one place of it has."""
    sketch = fit_tabs(old, sketch)
    lines, shifts = Counter(line.strip() for line in old.split("\n")), set[str | None]()
    indents = {line.strip(): line[: indent_of(line)] for line in old.split("\n")}
    for line in sketch.split("\n"):
        if line.strip() and lines[line.strip()] == 1:
            own, wanted = line[: indent_of(line)], indents[line.strip()]
            shifts.add(wanted.removesuffix(own) if wanted.endswith(own) else None)
    shift = shifts.pop() if len(shifts) == 1 else None
    return "\n".join(f"{shift}{line}" if line.strip() else line for line in sketch.split("\n")) if shift else sketch
