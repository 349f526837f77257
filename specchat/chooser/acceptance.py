"""How often the guesses of a drafter held, and what a tree of such guesses promises.

The text is the same whoever drafts. So a guess need not be verified to be judged: it is compared with the text that
came, and what was cut off or never verified teaches as much. Knows no clock and no choice: those are in `budget.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from specchat.engine.tree import ROOT, DraftTree

PLAIN = "plain"
DECAY = 0.985  # of what was seen remains, with each new observation of the same depth
SHIFT_AFTER_REJECTIONS, SHIFT_DECAY = (
    8,
    0.25,
)  # first guesses in a row that fall where most had held; what is then still believed
RELIABLE_ACCEPTANCE_RATE = 0.4  # who holds more often than this can surprise
PRIOR_WEIGHT, DEPTH_PRIOR_WEIGHT = (
    2.0,
    8.0,
)  # observations that a first opinion counts for; those that the depth before counts for
SIBLING_PRIOR_RATE = 0.15  # first opinion of a second-best guess, its elder having failed or not
MAX_DEPTH = 8  # deeper guesses are counted as so deep
CHAIN_LENGTH_BOUNDS = (4, 6, 10)  # deepest guesses of a tree: what promises more is counted apart


@dataclass(frozen=True)
class StepEstimate:
    """What somebody is expected to bring in one step, and what that costs."""

    name: str = PLAIN
    draft_tokens: int = 0
    expected_tokens: float = 1.0
    seconds: float = 1.0

    def token_gain(self, tokens_per_second: float) -> float:
        """Tokens gained over a writer who makes `pace` tokens a second.

        Not tokens by seconds: where a copy of twenty tokens may be found in the next step, a slow draft of four now is
        a loss, though it beats a plain pass.
        """
        return self.expected_tokens - tokens_per_second * self.seconds


class ExpectedTree(NamedTuple):
    """A tree that is expected: how likely each node is to be kept, and its levels."""

    probabilities: list[float]  # of the root first
    level_sizes: list[tuple[int, int]]  # of each level: how deep, and how many guesses so far


class AcceptanceStats:
    """How often the guesses of one drafter held, for one kind of task, by what a tree promised, depth and rank."""

    def __init__(self, prior_rate: float) -> None:
        self.prior_rate = prior_rate
        self.trials = [[0.0] * (2 * MAX_DEPTH) for _ in range(len(CHAIN_LENGTH_BOUNDS) + 1)]
        self.accepted = [[0.0] * (2 * MAX_DEPTH) for _ in range(len(CHAIN_LENGTH_BOUNDS) + 1)]
        self.largest_tree: DraftTree | None = None  # the largest tree of late
        self.is_below_budget = False  # more was asked for than that
        self.consecutive_rejections = 0  # first guesses that fell, one after the other
        self._rate_cache: dict[int, tuple[list[float], list[float]]] = {}
        self._expected_trees: dict[int, ExpectedTree] = {}

    def acceptance_rates(self, length_class: int) -> tuple[list[float], list[float]]:
        """How often a first guess at each depth holds when the one before it held; the same of its siblings.

        What was seldom seen is believed to be as the depth before it.
        """
        if length_class not in self._rate_cache:
            tried, held = self.trials[length_class], self.accepted[length_class]
            first, sibling = list[float](), list[float]()
            believed, beside = self.prior_rate, SIBLING_PRIOR_RATE
            for depth in range(MAX_DEPTH):
                trust = DEPTH_PRIOR_WEIGHT if depth else PRIOR_WEIGHT
                believed = (held[depth] + trust * believed) / (tried[depth] + trust)
                beside = (held[MAX_DEPTH + depth] + trust * beside) / (tried[MAX_DEPTH + depth] + trust)
                first.append(believed)
                sibling.append(beside)
            self._rate_cache[length_class] = first, sibling
        return self._rate_cache[length_class]

    def add_trial(self, length_class: int, slot: int, is_accepted: bool) -> None:
        """A guess was reached, and held or fell."""
        if slot == 0:
            self.consecutive_rejections = 0 if is_accepted else self.consecutive_rejections + 1
            if (
                self.consecutive_rejections == SHIFT_AFTER_REJECTIONS
                and self.acceptance_rates(length_class)[0][0] > RELIABLE_ACCEPTANCE_RATE
            ):
                self.trials[length_class] = [SHIFT_DECAY * count for count in self.trials[length_class]]
                self.accepted[length_class] = [SHIFT_DECAY * count for count in self.accepted[length_class]]
        self.trials[length_class][slot] = DECAY * self.trials[length_class][slot] + 1
        self.accepted[length_class][slot] = DECAY * self.accepted[length_class][slot] + is_accepted
        self._rate_cache.pop(length_class, None)
        self._expected_trees.clear()

    def add_tree(self, tree: DraftTree, requested_tokens: int) -> None:
        """This tree came when so many guesses were asked for."""
        self.is_below_budget = len(tree) - 1 < requested_tokens
        if self.largest_tree is None or len(tree) >= len(self.largest_tree) or self.is_below_budget:
            self.largest_tree = tree
        self._expected_trees.clear()

    def expected_tree(self, max_draft_tokens: int) -> ExpectedTree:
        """What the next tree will be like, when so many guesses are asked for."""
        if max_draft_tokens not in self._expected_trees:
            self._expected_trees[max_draft_tokens] = predict_tree(self, max_draft_tokens)
        return self._expected_trees[max_draft_tokens]

    def node_probabilities(self, tree: DraftTree, length_class: int) -> list[float]:
        """How likely each node is to be kept, the root being sure."""
        first, sibling = self.acceptance_rates(length_class)
        chances, parents, depths = [1.0], tree.parents, tree.depths
        if tree.is_chain:
            for depth in depths[1:]:
                chances.append(chances[-1] * first[min(depth, MAX_DEPTH) - 1])
            return chances
        elders = set[int]()
        for node in range(1, len(tree)):
            parent, depth = parents[node], min(depths[node], MAX_DEPTH) - 1
            chances.append(chances[parent] * (sibling if parent in elders else first)[depth])
            elders.add(parent)
        return chances


@dataclass
class TrackedDraft:
    """A tree whose guesses are compared with the text that comes."""

    stats: AcceptanceStats
    tree: DraftTree
    length_class: int
    last_accepted_node: int = ROOT  # the last one that held

    def compare_token(self, token: int) -> bool:
        """The next token of the text; returns whether there is more to compare."""
        tree, node = self.tree, self.last_accepted_node
        found = tree.child(node, token)
        depth = min(tree.depths[node] + 1, MAX_DEPTH) - 1
        if tree.is_chain:
            if node + 1 < len(tree):
                self.stats.add_trial(self.length_class, depth, found is not None)
        else:
            children = [child for child, parent in enumerate(tree.parents) if parent == node]
            for rank, child in enumerate(children):
                self.stats.add_trial(self.length_class, depth + (MAX_DEPTH if rank else 0), child == found)
        if found is not None:
            self.last_accepted_node = found
        return found is not None


def length_class_of(tree: DraftTree) -> int:
    """Which class a tree belongs to, by how far its first chain reaches: a long match is trusted further."""
    depth, node = 0, ROOT
    while node + 1 < len(tree) and tree.parents[node + 1] == node:
        node += 1
        depth += 1
    return sum(depth > length for length in CHAIN_LENGTH_BOUNDS)


def predict_tree(stats: AcceptanceStats, max_draft_tokens: int) -> ExpectedTree:
    """The next tree: as the largest of late; was that all that was asked for, with as many levels and two more."""
    shape = stats.largest_tree
    if shape is None:
        shape = DraftTree(0)
        shape.add_chain(list(range(1, min(max_draft_tokens, 2) + 1)))
    chances, depths = stats.node_probabilities(shape, 0)[: max_draft_tokens + 1], shape.depths[: max_draft_tokens + 1]
    sizes = [
        (depths[node], node)
        for node in range(1, len(depths))
        if node + 1 == len(depths) or depths[node + 1] > depths[node]
    ]
    if stats.is_below_budget or not sizes:
        return ExpectedTree(chances, sizes)
    first, sibling = stats.acceptance_rates(0)
    breadth = min(shape.depths.count(shape.depths[-1]), 2)
    leader = max(chances[-breadth:])
    for level in range(shape.depths[-1] + 1, 2 * shape.depths[-1] + 3):
        if len(chances) + breadth > max_draft_tokens + 1:
            break
        depth = min(level, MAX_DEPTH) - 1
        chances += [leader * first[depth], leader * sibling[depth]][:breadth]
        leader *= first[depth]
        sizes.append((level, len(chances) - 1))
    return ExpectedTree(chances, sizes)


def best_subtree(
    name: str,
    stats: AcceptanceStats,
    tree: DraftTree,
    pass_seconds: list[float],
    tokens_per_second: float,
    length_class: int | None = None,
) -> tuple[StepEstimate, DraftTree]:
    """The guesses of a tree that are worth their rows, and what they promise; what they cost to make is spent."""
    if len(tree) == 1:
        return StepEstimate(name, 0, 1.0, pass_seconds[1]), tree
    chances = stats.node_probabilities(tree, length_class_of(tree) if length_class is None else length_class)
    order = range(1, len(tree))
    if not tree.is_chain:
        order = sorted(order, key=lambda node: -chances[node])  # stable, so parents stay before their children
    tokens, kept, most, at = 1.0, 0, 1.0 - tokens_per_second * pass_seconds[1], 1.0
    for count, node in enumerate(order[: len(pass_seconds) - 2], start=1):
        tokens += chances[node]
        if tokens - tokens_per_second * pass_seconds[count + 1] > most:
            kept, most, at = count, tokens - tokens_per_second * pass_seconds[count + 1], tokens
    return StepEstimate(name, kept, at, pass_seconds[kept + 1]), tree if kept == len(tree) - 1 else tree.prune(
        sorted(order[:kept])
    )
