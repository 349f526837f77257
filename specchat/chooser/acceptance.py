"""Acceptance statistics of a drafter, and the expected number of accepted tokens of a draft tree.

The text is the same with any drafter. Therefore a draft token need not be verified to be counted: it is compared with
the committed text, even if it was pruned or never verified. This file knows no time and no choice (`chooser.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import inf, log, sqrt
from operator import add
from typing import NamedTuple

from specchat.engine.tree import ROOT, DraftTree

PLAIN = "plain"
DECAY = 0.985  # of old observations, with each new observation at the same depth
SHIFT_AFTER_REJECTIONS = 8  # consecutive rejections at depth 1 that indicate a change of the text
SHIFT_DECAY = 0.25  # of old observations after such a change
RELIABLE_ACCEPTANCE_RATE = 0.4  # a change is only assumed for drafters above this rate
PRIOR_WEIGHT = 2.0  # observations that the prior at depth 1 counts for
RANK_PRIOR_WEIGHT = 12.0  # observations that the ranks before it count for, in the prior of a rank
MAX_RANK_RATIO = 0.9  # of the prior of a rank to the rank before it
MIN_RANK_RATIOS = [rank / (rank + 1) for rank in range(9)]  # of the first ranks; of later ones the maximum
MAX_LATER_RANKS = MAX_RANK_RATIO / (1 - MAX_RANK_RATIO)  # of all later ranks together to an unknown one, at most
DEPTH_PRIOR_WEIGHT = 8.0  # observations that the rate of the previous depth counts for
SIBLING_PRIOR_RATE = 0.15  # prior of a second-best draft token
MAX_DEPTH = 8  # deeper draft tokens count as this deep
MIN_OWN_DRAFTS = 2  # that are compared before earlier counts are used
DISPROVED_LOG_RATIO = 1.5  # of own drafts, with their own rate and with the earlier one
EARLIER_RATE_BOUNDS = (0.05, 0.95)  # earlier counts are never sure of a draft token
MIN_EARLIER_DRAFTS = 0.1  # with fewer left, earlier counts are dropped
EARLIER_FADING = 0.98  # of earlier counts with each step: own ones are to replace them
CHAIN_LENGTH_BOUNDS = (4, 6, 10)  # trees are counted in classes by the length of their first chain


class StepEstimate(NamedTuple):
    name: str = PLAIN
    draft_tokens: int = 0
    expected_tokens: float = 1.0
    seconds: float = 1.0

    def token_gain(self, tokens_per_second: float) -> float:
        """The expected tokens minus those that a decoder with this speed makes in the same time.

        Tokens per second of this step alone are not enough: if the next step may copy twenty tokens, a slow draft of
        four tokens now is a loss, although it is faster than a plain pass.
        """
        return self.expected_tokens - tokens_per_second * self.seconds


class CountsKey(NamedTuple):
    """What is counted together."""

    drafter: str
    task_kind: str
    is_stochastic: bool


@dataclass
class RankCounts:
    """How often the node at each place of a tree was compared and accepted, and the mean depth of the tree up to it."""

    trials: list[float] = field(default_factory=list[float])
    accepted: list[float] = field(default_factory=list[float])
    depths: list[float] = field(default_factory=list[float])  # of the deepest node

    def scaled(self, factor: float) -> RankCounts:
        return RankCounts([factor * n for n in self.trials], [factor * n for n in self.accepted], self.depths)

    def __add__(self, other: RankCounts) -> RankCounts:
        """The sum; the depths are those of this one, as far as it goes."""
        return RankCounts(
            _summed(self.trials, other.trials),
            _summed(self.accepted, other.accepted),
            [*self.depths, *other.depths[len(self.depths) :]],
        )


def _summed(one: list[float], two: list[float]) -> list[float]:
    return [*map(add, one, two), *one[len(two) :], *two[len(one) :]]


class AcceptanceStats:
    """Accepted and compared draft tokens of one drafter for one kind of task.

    They are counted twice: given that the parent was accepted, by length class and depth, to judge a tree that is known
    (`node_probabilities`); and by rank, the place in the tree, to expect the next tree (`expected_nodes`). Drafters
    that compute return the most probable nodes first, so the first n ranks are their tree for a budget of n.

    `earlier` are the ranks of other processes. They count after a few own drafts, until these contradict them.
    """

    def __init__(self, prior_rate: float, earlier: RankCounts | None = None) -> None:
        self.prior_rate, self.earlier = prior_rate, earlier
        self.own_drafts, self.is_disproved = 0, False
        self.trials = [[0.0] * (2 * MAX_DEPTH) for _ in range(len(CHAIN_LENGTH_BOUNDS) + 1)]
        self.accepted = [[0.0] * (2 * MAX_DEPTH) for _ in range(len(CHAIN_LENGTH_BOUNDS) + 1)]
        self.ranks = RankCounts()
        self.is_below_budget = False  # the last tree was smaller than requested
        self.consecutive_rejections = 0  # at depth 1
        self._rate_cache: dict[int, tuple[list[float], list[float]]] = {}

    def acceptance_rates(self, length_class: int) -> tuple[list[float], list[float]]:
        """The rates of first children and of their siblings at each depth, given that the parent was accepted.

        The prior of each depth is the rate of the depth before it.
        """
        if length_class not in self._rate_cache:
            trials, accepted = self.trials[length_class], self.accepted[length_class]
            first, sibling = list[float](), list[float]()
            first_rate, sibling_rate = self.prior_rate, SIBLING_PRIOR_RATE
            for depth in range(MAX_DEPTH):
                weight, beside = DEPTH_PRIOR_WEIGHT if depth else PRIOR_WEIGHT, MAX_DEPTH + depth
                first_rate = (accepted[depth] + weight * first_rate) / (trials[depth] + weight)
                sibling_rate = (accepted[beside] + weight * sibling_rate) / (trials[beside] + weight)
                first.append(first_rate)
                sibling.append(sibling_rate)
            self._rate_cache[length_class] = first, sibling
        return self._rate_cache[length_class]

    def add_trial(self, length_class: int, slot: int, is_accepted: bool) -> None:
        """Count a draft token whose parent was accepted. Slots of siblings follow those of first children."""
        if slot == 0:
            self.consecutive_rejections = 0 if is_accepted else self.consecutive_rejections + 1
            if (
                self.consecutive_rejections == SHIFT_AFTER_REJECTIONS
                and self.acceptance_rates(length_class)[0][0] > RELIABLE_ACCEPTANCE_RATE
            ):
                self.trials[length_class] = [SHIFT_DECAY * count for count in self.trials[length_class]]
                self.accepted[length_class] = [SHIFT_DECAY * count for count in self.accepted[length_class]]
                self.ranks, self.earlier, self.is_disproved = self.ranks.scaled(SHIFT_DECAY), None, True
        self.trials[length_class][slot] = DECAY * self.trials[length_class][slot] + 1
        self.accepted[length_class][slot] = DECAY * self.accepted[length_class][slot] + is_accepted
        self._rate_cache.pop(length_class, None)

    def add_compared_tree(self, tree: DraftTree, last_accepted_node: int) -> None:
        """Count which ranks of a tree were accepted; the accepted nodes are the path to `last_accepted_node`."""
        accepted, node, depth = set[int](), last_accepted_node, 0
        while node != ROOT:
            accepted.add(node)
            node = tree.parents[node]
        trials, counts, depths = self.ranks.trials, self.ranks.accepted, self.ranks.depths
        for rank in range(len(tree) - 1):
            depth = max(depth, tree.depths[rank + 1])
            if rank == len(trials):
                trials.append(0.0)
                counts.append(0.0)
                depths.append(float(depth))
            trials[rank] = DECAY * trials[rank] + 1
            counts[rank] = DECAY * counts[rank] + (rank + 1 in accepted)
            depths[rank] += (depth - depths[rank]) / trials[rank]
        self._check_earlier()

    def _check_earlier(self) -> None:
        """Drop earlier counts when own drafts are much less likely with them: a likelihood ratio of first tokens."""
        self.own_drafts += 1
        if self.earlier is not None:
            (low, high), own = EARLIER_RATE_BOUNDS, self.ranks.accepted[0] / self.ranks.trials[0]
            rate = min(max(self.earlier.accepted[0] / self.earlier.trials[0], low), high)
            log_ratio = sum(
                share * log(share / other) for share, other in ((own, rate), (1 - own, 1 - rate)) if share > 0
            )
            if self.ranks.trials[0] * log_ratio > DISPROVED_LOG_RATIO:
                self.earlier, self.is_disproved = None, True

    @property
    def basis(self) -> str:
        """Where expectations come from, for people; "" for own drafts."""
        if self.uses_earlier:
            return " (also from earlier conversations)"
        return "" if self.own_drafts else " (not measured yet)"

    @property
    def uses_earlier(self) -> bool:
        return self.earlier is not None and self.own_drafts >= MIN_OWN_DRAFTS

    def fade(self, share: float, earlier_share: float) -> None:
        """Reduce the counts, so that the confidence bound of a drafter that is not used widens."""
        self.ranks = self.ranks.scaled(share)
        if self.earlier is not None:
            self.earlier = self.earlier.scaled(earlier_share) if self.earlier.trials[0] > MIN_EARLIER_DRAFTS else None

    def add_proposal(self, tree: DraftTree, requested_tokens: int) -> None:
        self.is_below_budget = len(tree) - 1 < requested_tokens

    def expected_nodes(self, max_draft_tokens: int, confidence: float = 0.0) -> Iterator[tuple[float, int, float]]:
        """The next tree, by rank: as far as trees have been, and twice as far if the last one used its whole budget.

        For each rank the probability that its node is accepted, the depth that the drafter computes for it, and how
        many tokens all later ranks bring at most. The first is a confidence bound: its mean and so many standard
        deviations. The prior of each other rank continues the ranks before it.
        """
        ranks = self.ranks if self.earlier is None or not self.uses_earlier else self.ranks + self.earlier
        trials, accepted, depths, known = ranks.trials, ranks.accepted, ranks.depths, len(ranks.trials)
        count = min(known if self.is_below_budget else 2 * known + 2, max_draft_tokens)
        # depth grows as a power of the rank: 1 for a chain, less for a tree
        exponent = log(depths[-1]) / log(known) if known > 1 else 1.0
        above, ratio, lowest_ratios = 1.0, self.prior_rate, chain(MIN_RANK_RATIOS, repeat(MAX_RANK_RATIO))
        for rank, lowest in zip(range(count), lowest_ratios, strict=False):
            seen, right = (trials[rank], accepted[rank]) if rank < known else (0.0, 0.0)
            if rank:
                ratio = lowest if ratio < lowest else min(ratio, MAX_RANK_RATIO)
                probability = (right + RANK_PRIOR_WEIGHT * (above * ratio)) / (seen + RANK_PRIOR_WEIGHT)
                ratio = probability / above if above else 0.0
            else:
                weight = seen + PRIOR_WEIGHT
                mean = (right + PRIOR_WEIGHT * ratio) / weight
                bound = mean + confidence * sqrt(mean * (1 - mean) / weight)
                ratio = probability = min(max(bound, 0.0), MAX_RANK_RATIO)
            if rank < known:
                yield probability, round(depths[rank]), inf
            else:
                yield probability, round((rank + 1) ** exponent), MAX_LATER_RANKS * probability
            above = probability

    def node_probabilities(self, tree: DraftTree, length_class: int) -> list[float]:
        """The probability that each node is accepted; 1 for the root."""
        first, sibling = self.acceptance_rates(length_class)
        probabilities, parents, depths = [1.0], tree.parents, tree.depths
        if tree.is_chain:
            for depth in depths[1:]:
                probabilities.append(probabilities[-1] * first[min(depth, MAX_DEPTH) - 1])
            return probabilities
        parents_with_child = set[int]()
        for node in range(1, len(tree)):
            parent, depth = parents[node], min(depths[node], MAX_DEPTH) - 1
            probabilities.append(probabilities[parent] * (sibling if parent in parents_with_child else first)[depth])
            parents_with_child.add(parent)
        return probabilities


@dataclass
class TrackedDraft:
    stats: AcceptanceStats
    tree: DraftTree
    length_class: int
    counts_ranks: bool = True  # of no use for trees that are known before the choice
    last_accepted_node: int = ROOT

    def compare_token(self, token: int) -> bool:
        """Compare the next committed token; returns False when the comparison ends."""
        tree, node = self.tree, self.last_accepted_node
        accepted_child = tree.child(node, token)
        depth = min(tree.depths[node] + 1, MAX_DEPTH) - 1
        if tree.is_chain:
            if node + 1 < len(tree):
                self.stats.add_trial(self.length_class, depth, accepted_child is not None)
        else:
            children = [child for child, parent in enumerate(tree.parents) if parent == node]
            for rank, child in enumerate(children):
                self.stats.add_trial(self.length_class, depth + (MAX_DEPTH if rank else 0), child == accepted_child)
        if accepted_child is None:
            if self.counts_ranks:
                self.stats.add_compared_tree(tree, node)
            return False
        self.last_accepted_node = accepted_child
        return True


def length_class_of(tree: DraftTree) -> int:
    """The class of a tree by the length of its first chain: a drafter makes long chains from reliable matches."""
    depth, node = 0, ROOT
    while node + 1 < len(tree) and tree.parents[node + 1] == node:
        node += 1
        depth += 1
    return sum(depth > length for length in CHAIN_LENGTH_BOUNDS)


def best_subtree(
    name: str, stats: AcceptanceStats, tree: DraftTree, pass_seconds: list[float], tokens_per_second: float
) -> tuple[StepEstimate, DraftTree]:
    """The nodes of a drafted tree that are worth verifying, and the estimate for them without the drafting time."""
    if len(tree) == 1:
        return StepEstimate(name, 0, 1.0, pass_seconds[1]), tree
    probabilities = stats.node_probabilities(tree, length_class_of(tree))
    order = range(1, len(tree))
    if not tree.is_chain:
        order = sorted(order, key=lambda node: -probabilities[node])  # stable, so parents stay before their children
    tokens, best_count, best_gain, best_tokens = 1.0, 0, 1.0 - tokens_per_second * pass_seconds[1], 1.0
    for count, node in enumerate(order[: len(pass_seconds) - 2], start=1):
        tokens += probabilities[node]
        gain = tokens - tokens_per_second * pass_seconds[count + 1]
        if gain > best_gain:
            best_count, best_gain, best_tokens = count, gain, tokens
    estimate = StepEstimate(name, best_count, best_tokens, pass_seconds[best_count + 1])
    return estimate, tree.prune(sorted(order[:best_count]))
