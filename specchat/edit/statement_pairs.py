"""Which statement of a new text each statement of the old one became: a copy, a changed version, a part of another one.

What became of nothing is gone. It decides nothing about what may be gone. Knows no model and no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from specchat.syntax.languages import node_kinds
from specchat.syntax.statements import Statement

PROSE_KINDS, SCALAR_KINDS = (node_kinds("statements", key) for key in ("prose", "scalars"))
MIN_SAME_KIND, MIN_OTHER_KIND = 0.3, 0.5  # how alike two versions of a statement are at least, by their words
MIN_ABSORBED_FRACTION = 0.6  # of the words of a statement that a transformation put into another one
MAX_NEIGHBOURS = 50


@dataclass
class StatementPairs:
    """Old and new statements, and which of the new ones each old one became."""

    old: Sequence[Statement]
    new: Sequence[Statement]
    became: dict[int, int] = field(default_factory=dict[int, int])  # changed or not
    changed: set[int] = field(default_factory=set[int])  # of the new ones, those that are no copies

    @classmethod
    def of(
        cls, old: Sequence[Statement], new: Sequence[Statement], *, is_addition: bool, may_move: bool
    ) -> StatementPairs:
        """The pairs; what is added replaces nothing, so a changed version keeps all words then."""
        pairs = cls(old, new)
        pairs._pair_equal()
        pairs._pair_named()
        if not may_move:
            pairs._drop_strayed()
        pairs._pair_in_place(is_addition=is_addition)
        return pairs

    @property
    def gone(self) -> list[int]:
        """The old statements that became nothing."""
        return [index for index in range(len(self.old)) if index not in self.became]

    @property
    def added(self) -> list[int]:
        """The new statements that were no old ones."""
        taken = set(self.became.values())
        return [index for index in range(len(self.new)) if index not in taken]

    def is_absorbed(self, index: int) -> bool:
        """Whether most words of an old statement were added somewhere else."""
        sources, added = {new: old for old, new in self.became.items()}, Counter[str]()
        for each in (*self.added, *self.changed):
            before = Counter(self.old[sources[each]].words) if each in sources else Counter[str]()
            added += Counter(self.new[each].words) - before
        words = Counter(self.old[index].words)
        return (words & added).total() >= MIN_ABSORBED_FRACTION * words.total()

    def _pair(self, old: int, new: int, *, is_changed: bool) -> None:
        self.became[old] = new
        if is_changed:
            self.changed.add(new)

    def _pair_equal(self) -> None:
        """Pair statements with the same words: first in order, then wherever they moved to."""
        old, new = ([(each.words, each.is_import) for each in side] for side in (self.old, self.new))
        for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            for offset in range(block.size):
                self._pair_same(block.a + offset, block.b + offset)
        places: dict[tuple[tuple[str, ...], bool], list[int]] = {}
        for index in reversed(self.added):
            places.setdefault(new[index], []).append(index)
        for index in self.gone:
            if places.get(old[index]):
                self._pair_same(index, places[old[index]].pop())

    def _drop_strayed(self) -> None:
        """A part of a statement is gone if what stays of it stands in another one."""
        for index, new in list(self.became.items()):
            owner = self.became.get(self.old[index].owner)
            if self.old[index].is_part and owner is not None and owner not in owners(self.new, new):
                del self.became[index]
                self.changed.discard(new)

    def _pair_same(self, old: int, new: int) -> None:
        self._pair(old, new, is_changed=self.old[old].tokens != self.new[new].tokens)

    def _pair_named(self) -> None:
        """Pair what has the same name: in the same owner if possible, else in another one."""
        for is_same_owner in (True, False):
            places: dict[tuple[str, str], list[int]] = {}
            for index in reversed(self.added):
                if (name := self.new[index].name) and (is_same_owner or not self.new[index].is_inner):
                    places.setdefault((name, _path(self.new, index, is_same_owner)), []).append(index)
            for index in self.gone:
                key = (self.old[index].name, _path(self.old, index, is_same_owner))
                if key[0] and places.get(key) and (is_same_owner or not self.old[index].is_inner):
                    self._pair(index, places[key].pop(), is_changed=True)

    def _pair_in_place(self, *, is_addition: bool) -> None:
        """Pair statements between the same neighbours that are alike."""
        old, new = self.old, self.new
        for index in self.gone:
            before = max((self.became[each] for each in range(index) if each in self.became), default=-1)
            after = min((self.became[each] for each in range(index, len(old)) if each in self.became), default=len(new))
            function = self.became.get(function_of(old, index), -1)
            between = [each for each in self.added if before < each < after or before > after][:MAX_NEIGHBOURS]
            between = [each for each in between if not old[index].is_inner or function_of(new, each) == function]
            likeness = {each: _likeness(old[index], new[each]) for each in between}
            best = max(likeness, key=lambda each: likeness[each], default=-1)
            if best < 0 or not _is_version(old[index], new[best], likeness[best]):
                continue
            if not is_addition or _names(old[index]) <= _names(new[best]):
                self._pair(index, best, is_changed=True)


def function_of(side: Sequence[Statement], index: int) -> int:
    """The function around a statement, -1 for none."""
    return next((each for each in owners(side, index) if side[each].is_function), -1)


def with_below(side: Sequence[Statement], index: int) -> range:
    """A statement and all that are in it, which follow it."""
    end = index + 1
    while end < len(side) and side[end].owner >= index:
        end += 1
    return range(index, end)


def owners(side: Sequence[Statement], index: int) -> Iterator[int]:
    """The statements around one, the innermost first."""
    while (index := side[index].owner) >= 0:
        yield index


def _path(side: Sequence[Statement], index: int, is_wanted: bool) -> str:
    """The names of the owners of a statement, outer last."""
    return ".".join(side[owner].name for owner in owners(side, index)) if is_wanted else ""


def _names(statement: Statement) -> Counter[str]:
    return Counter(word for word in statement.words if not word[0].isdigit())


def _likeness(old: Statement, new: Statement) -> float:
    if old.is_import != new.is_import:
        return 0.0
    common = (Counter(old.words) & Counter(new.words)).total()
    return 2 * common / (len(old.words) + len(new.words))


def _is_version(old: Statement, new: Statement, likeness: float) -> bool:
    if old.is_import:
        return False  # the names that it binds count
    if old.kind == new.kind and old.kind in (*PROSE_KINDS, *SCALAR_KINDS):
        return True
    if old.name.startswith("__") and old.name != new.name:
        return False
    return likeness >= (MIN_SAME_KIND if old.kind == new.kind else MIN_OTHER_KIND)
