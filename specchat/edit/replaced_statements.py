"""Which statements that are gone from functions have others in their place: a replacement takes over what they did.

A variable that stays keeps as many assignments as it had; one that is gone takes along what used it. What assigns
nothing stands in the same lines in other words, or as another statement of its kind about the same names. Knows pairs
of statements and lines; whether something may be replaced at all is not decided here.
"""

import re
from collections import Counter
from collections.abc import Iterator

from specchat.edit.statement_pairs import MIN_ABSORBED_FRACTION, StatementPairs, function_of, owners, with_below
from specchat.syntax.languages import node_kinds
from specchat.syntax.statements import Statement

NAME = re.compile(r"[^\W\d]\w*")
NO_ASSIGNMENTS = re.compile(
    r"if|while|elif|switch|match|for|binary|comparison"
)  # their name is a condition, or what runs through
KEYWORDS = frozenset(NAME.findall("self this return if for in not and or is raise assert while"))
LOOPS, JUMPS = (node_kinds("statements", key) for key in ("loops", "jumps"))


def replaced(pairs: StatementPairs) -> set[int]:
    """The numbers of the old statements that are gone and replaced."""
    functions = {function_of(pairs.old, index) for index in pairs.gone}
    return {index for function in functions for index in _Function(pairs, function).replaced()}


def loses_effect(pairs: StatementPairs, index: int) -> bool:
    """Whether a statement became one of another kind, and its function ends or assigns a variable less often."""
    old, new = pairs.old[index], pairs.new[pairs.became[index]]
    if old.kind == new.kind:
        return False
    function = _Function(pairs, function_of(pairs.old, index))
    lost = {old.kind} & JUMPS or targets(old) - targets(new) - function.vanished
    return any(function.after[each] < function.before[each] for each in lost)


def targets(statement: Statement) -> set[str]:
    """The names that a statement assigns: of `names[key]` it is `names`."""
    is_other = statement.is_definition or statement.is_call or NO_ASSIGNMENTS.match(statement.kind)
    return set() if is_other else set(NAME.findall(statement.name.partition("[")[0])) - KEYWORDS


class _Function:
    """The statements of one function, before and after."""

    def __init__(self, pairs: StatementPairs, function: int) -> None:
        self.pairs, self._became = pairs, pairs.became.get(function, -1)
        old, new = pairs.old, pairs.new
        self._own = [index for index in range(len(old)) if function_of(old, index) == function]
        own_new = [index for index in range(len(new)) if function_of(new, index) == self._became]
        inside = [index for index in range(len(new)) if self._became in (index, -1, *owners(new, index))]
        self.before, self.after = (
            Counter(effect for index in own for effect in (side[index].kind, *targets(side[index])))
            for side, own in ((old, self._own), (new, own_new))
        )
        loops = {name for index in self._own if old[index].kind in LOOPS for name in NAME.findall(old[index].name)}
        assigned = {name for index in self._own for name in targets(old[index])}
        self.vanished = (assigned | loops) - {token for index in inside for token in new[index].tokens}
        written = {*pairs.added, *(index for index in pairs.changed if not new[index].is_definition)}
        self._added = {index: Counter(NAME.findall(" ".join(new[index].tokens))) for index in written}
        self._own_new, self._free = set(own_new), sorted(set(pairs.added) & set(own_new))

    def replaced(self) -> Iterator[int]:
        for index in sorted(set(self.pairs.gone) & set(self._own)):
            old, names = self.pairs.old[index], targets(self.pairs.old[index])
            place = self._place(index)
            if names <= self.vanished and self._uses_vanished(index):
                yield index
            elif (stays := names - self.vanished) and "[" not in old.name:
                is_taken_over = place and all(self.after[name] >= self.before[name] for name in stays)
                if is_taken_over or any(_has_all_of(self.pairs.new[each], old) for each in place):
                    yield index
            elif self._is_absorbed(index, place) or self._has_counterpart(index, place):
                yield index

    def _place(self, index: int) -> set[int]:
        """What was written between the new versions of the statements before and after one, or in them."""
        became = [(each, self.pairs.became.get(each, -1)) for each in self._own]
        before = max((new for each, new in became if each < index and new in self._own_new), default=0)
        after = min((new for each, new in became if each > index and new in self._own_new), default=len(self.pairs.new))
        return {each for each in self._added if before <= each <= after and each in self._own_new}

    def _uses_vanished(self, index: int) -> bool:
        """Whether it uses a variable that is gone, and that statements beside it had, too."""
        old, inside = self.pairs.old, with_below(self.pairs.old, index)
        used = {token for each in inside for token in old[each].tokens} & self.vanished
        return bool(used) and any(used & {*old[each].tokens} for each in self._own if each not in inside)

    def _is_absorbed(self, index: int, place: set[int]) -> bool:
        """Whether most of its words were added in its place, or in another function."""
        words = Counter(NAME.findall(" ".join(self.pairs.old[index].tokens)))
        new = self.pairs.new
        near = [each for each in self._added if each in place or function_of(new, each) != self._became]
        common = words & sum((self._added[each] for each in near), Counter[str]())
        if common.total() < MIN_ABSORBED_FRACTION * words.total():
            return False
        for each in near:
            common, self._added[each] = common - self._added[each], self._added[each] - common
        return True

    def _has_counterpart(self, index: int, place: set[int]) -> bool:
        """Whether a new statement of its kind stands in its place, about one of its names, and for no other one."""
        old = self.pairs.old[index]
        names = set(NAME.findall(" ".join(old.tokens))) - KEYWORDS
        for each in self._free:
            new = self.pairs.new[each]
            is_alike = old.kind == new.kind or {old.kind, new.kind} <= LOOPS
            is_there = old.kind in JUMPS | LOOPS and new.owner == self.pairs.became.get(old.owner, -1)
            if is_alike and each in place and (is_there or names & {*new.tokens}):
                self._free.remove(each)
                return True
        return False


def _has_all_of(new: Statement, old: Statement) -> bool:
    """Whether a statement assigns the same variables, and has every word and text of another one."""
    return targets(old) <= targets(new) and {*old.tokens} <= {*new.tokens}
