"""How often the guesses of a drafter held, and what a tree of such guesses promises.

The text is the same whoever drafts. So a guess need not be verified to be judged: it is compared with the text that
came, and what was cut off or never verified teaches as much. Knows no clock and no choice: those are in `budget.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from specchat.engine.tree import ROOT, DraftTree

PLAIN = "plain"
FORGETTING = 0.985  # of what was seen remains, with each new observation of the same depth
SURPRISE, SURPRISED = 8, 0.25  # first guesses in a row that fall where most had held; what is then still believed
RELIABLE = 0.4  # who holds more often than this can surprise
TRUST, TRUST_BELOW = 2.0, 8.0  # observations that a first opinion counts for; those that the depth before counts for
SIBLING = 0.15  # first opinion of a second-best guess, its elder having failed or not
DEPTHS = 8  # deeper guesses are counted as so deep
LENGTHS = (4, 6, 10)  # deepest guesses of a tree: what promises more is counted apart


@dataclass(frozen=True)
class Offer:
    """What somebody is expected to bring in one step, and what that costs."""

    name: str = PLAIN
    guesses: int = 0
    tokens: float = 1.0
    seconds: float = 1.0

    def worth(self, pace: float) -> float:
        """Tokens gained over a writer who makes `pace` tokens a second.

        Not tokens by seconds: where a copy of twenty tokens may be found in the next step, a slow draft of four now is
        a loss, though it beats a plain pass.
        """
        return self.tokens - pace * self.seconds


class Foreseen(NamedTuple):
    """A tree that is expected: how likely each node is to be kept, and its levels."""

    chances: list[float]  # of the root first
    sizes: list[tuple[int, int]]  # of each level: how deep, and how many guesses so far


class Record:
    """How often the guesses of one drafter held, for one kind of task, by what a tree promised, depth and rank."""

    def __init__(self, opinion: float) -> None:
        self.opinion = opinion
        self.tried = [[0.0] * (2 * DEPTHS) for _ in range(len(LENGTHS) + 1)]
        self.held = [[0.0] * (2 * DEPTHS) for _ in range(len(LENGTHS) + 1)]
        self.shape: DraftTree | None = None  # the largest tree of late
        self.is_whole = False  # more was asked for than that
        self.falls = 0  # first guesses that fell, one after the other
        self._rates: dict[int, tuple[list[float], list[float]]] = {}
        self._foreseen: dict[int, Foreseen] = {}

    def rates(self, promise: int) -> tuple[list[float], list[float]]:
        """How often a first guess at each depth holds when the one before it held; the same of its siblings.

        What was seldom seen is believed to be as the depth before it.
        """
        if promise not in self._rates:
            tried, held = self.tried[promise], self.held[promise]
            first, sibling = list[float](), list[float]()
            believed, beside = self.opinion, SIBLING
            for depth in range(DEPTHS):
                trust = TRUST_BELOW if depth else TRUST
                believed = (held[depth] + trust * believed) / (tried[depth] + trust)
                beside = (held[DEPTHS + depth] + trust * beside) / (tried[DEPTHS + depth] + trust)
                first.append(believed)
                sibling.append(beside)
            self._rates[promise] = first, sibling
        return self._rates[promise]

    def note(self, promise: int, slot: int, has_held: bool) -> None:
        """A guess was reached, and held or fell."""
        if slot == 0:
            self.falls = 0 if has_held else self.falls + 1
            if self.falls == SURPRISE and self.rates(promise)[0][0] > RELIABLE:
                self.tried[promise] = [SURPRISED * count for count in self.tried[promise]]
                self.held[promise] = [SURPRISED * count for count in self.held[promise]]
        self.tried[promise][slot] = FORGETTING * self.tried[promise][slot] + 1
        self.held[promise][slot] = FORGETTING * self.held[promise][slot] + has_held
        self._rates.pop(promise, None)
        self._foreseen.clear()

    def look(self, tree: DraftTree, asked: int) -> None:
        """This tree came when so many guesses were asked for."""
        self.is_whole = len(tree) - 1 < asked
        if self.shape is None or len(tree) >= len(self.shape) or self.is_whole:
            self.shape = tree
        self._foreseen.clear()

    def foreseen(self, budget: int) -> Foreseen:
        """What the next tree will be like, when so many guesses are asked for."""
        if budget not in self._foreseen:
            self._foreseen[budget] = foreseen(self, budget)
        return self._foreseen[budget]

    def chances(self, tree: DraftTree, promise: int) -> list[float]:
        """How likely each node is to be kept, the root being sure."""
        first, sibling = self.rates(promise)
        chances, parents, depths = [1.0], tree.parents, tree.depths
        if tree.is_chain:
            for depth in depths[1:]:
                chances.append(chances[-1] * first[min(depth, DEPTHS) - 1])
            return chances
        elders = set[int]()
        for node in range(1, len(tree)):
            parent, depth = parents[node], min(depths[node], DEPTHS) - 1
            chances.append(chances[parent] * (sibling if parent in elders else first)[depth])
            elders.add(parent)
        return chances


@dataclass
class Watched:
    """A tree whose guesses are compared with the text that comes."""

    record: Record
    tree: DraftTree
    promise: int
    node: int = ROOT  # the last one that held

    def hear(self, token: int) -> bool:
        """The next token of the text; returns whether there is more to compare."""
        tree, node = self.tree, self.node
        found = tree.child(node, token)
        depth = min(tree.depths[node] + 1, DEPTHS) - 1
        if tree.is_chain:
            if node + 1 < len(tree):
                self.record.note(self.promise, depth, found is not None)
        else:
            children = [child for child, parent in enumerate(tree.parents) if parent == node]
            for rank, child in enumerate(children):
                self.record.note(self.promise, depth + (DEPTHS if rank else 0), child == found)
        if found is not None:
            self.node = found
        return found is not None


def promised(tree: DraftTree) -> int:
    """Which class a tree belongs to, by how far its first chain reaches: a long match is trusted further."""
    depth, node = 0, ROOT
    while node + 1 < len(tree) and tree.parents[node + 1] == node:
        node += 1
        depth += 1
    return sum(depth > length for length in LENGTHS)


def foreseen(record: Record, budget: int) -> Foreseen:
    """The next tree: as the largest of late; was that all that was asked for, with as many levels and two more."""
    shape = record.shape
    if shape is None:
        shape = DraftTree(0)
        shape.add_chain(list(range(1, min(budget, 2) + 1)))
    chances, depths = record.chances(shape, 0)[: budget + 1], shape.depths[: budget + 1]
    sizes = [
        (depths[node], node)
        for node in range(1, len(depths))
        if node + 1 == len(depths) or depths[node + 1] > depths[node]
    ]
    if record.is_whole or not sizes:
        return Foreseen(chances, sizes)
    first, sibling = record.rates(0)
    breadth = min(shape.depths.count(shape.depths[-1]), 2)
    leader = max(chances[-breadth:])
    for level in range(shape.depths[-1] + 1, 2 * shape.depths[-1] + 3):
        if len(chances) + breadth > budget + 1:
            break
        depth = min(level, DEPTHS) - 1
        chances += [leader * first[depth], leader * sibling[depth]][:breadth]
        leader *= first[depth]
        sizes.append((level, len(chances) - 1))
    return Foreseen(chances, sizes)


def best_part(
    name: str, record: Record, tree: DraftTree, rows: list[float], pace: float, promise: int | None = None
) -> tuple[Offer, DraftTree]:
    """The guesses of a tree that are worth their rows, and what they promise; what they cost to make is spent."""
    if len(tree) == 1:
        return Offer(name, 0, 1.0, rows[1]), tree
    chances = record.chances(tree, promised(tree) if promise is None else promise)
    order = range(1, len(tree))
    if not tree.is_chain:
        order = sorted(order, key=lambda node: -chances[node])  # stable, so parents stay before their children
    tokens, kept, most, at = 1.0, 0, 1.0 - pace * rows[1], 1.0
    for count, node in enumerate(order[: len(rows) - 2], start=1):
        tokens += chances[node]
        if tokens - pace * rows[count + 1] > most:
            kept, most, at = count, tokens - pace * rows[count + 1], tokens
    return Offer(name, kept, at, rows[kept + 1]), tree if kept == len(tree) - 1 else tree.cut(sorted(order[:kept]))
