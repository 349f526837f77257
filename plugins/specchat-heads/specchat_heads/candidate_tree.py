"""A tree of the best candidates of each position ahead: the drafts of assistants, Medusa and Hydra.

The shape of the tree follows from the measured acceptance of each candidate of each head, starting from a prior. At
T > 0 the candidates are ranked with the noise of their position. Knows nothing of the heads but their logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

from torch import Tensor

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.forward.native.native_sampling import rank_rows

DraftPath = tuple[int, ...]  # draft tokens from the root to a node, without the root
# The logits of the tokens at a depth after these paths: one row for all of them, or one for each.
PathLogits = Callable[[int, Sequence[DraftPath]], Tensor]
TOP_K = 8  # candidates of each head
# Acceptance probability of the candidate of each rank, for the first head.
PRIOR_PROBABILITIES = (0.5, 0.13, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01)
DEPTH_DECAY = 0.75  # factor on these for each further head
LEARNING_RATE = 0.02
MIN_PATH_PROBABILITY = 0.01  # less probable paths are not worth a row


class CandidateTree(Drafter, ABC):
    """Drafts a tree whose shape follows the measured acceptance. Where the logits come from, subclasses know."""

    depends_on_path = False  # whether the candidates of a position differ from path to path

    def __init__(self, tokens_ahead: int) -> None:
        self.acceptance_probabilities = [
            [probability * DEPTH_DECAY**ahead for probability in PRIOR_PROBABILITIES] for ahead in range(tokens_ahead)
        ]
        # of the last tree, by depth: the candidates after each path, or those after all of them
        self._candidates: list[Mapping[DraftPath | None, list[int]]] = []
        self._draft_position = -1  # position of the root of that tree

    @abstractmethod
    def path_logits(self, context: DraftContext) -> PathLogits | None:
        """Computes the logits after a path, depth by depth; None while hidden states are missing."""

    def propose(self, context: DraftContext) -> DraftTree:
        tree, sampler = DraftTree(context.tokens[-1]), context.sampler
        self._candidates, self._draft_position = [], len(context.tokens) - 1
        if (path_logits := self.path_logits(context)) is None:
            return tree
        template = sparse_tree(self.acceptance_probabilities, context.max_draft_tokens)
        level = [(ROOT, ROOT)]  # nodes of the tree, with their nodes of the template
        for ahead in range(len(self.acceptance_probabilities)):
            level = [(node, template_node) for node, template_node in level if template[template_node]]
            if not level:
                break
            paths = [tuple(tree.path_tokens(node)) for node, _template_node in level]
            keys = paths if self.depends_on_path or sampler.has_penalties else [None]
            draft_paths = [list(path) for path in paths] if sampler.has_penalties else None
            rows = LogitRows([len(context.tokens) - 1 + ahead] * len(keys), draft_paths)
            logits = path_logits(ahead, paths).expand(len(keys), -1)
            best = rank_rows(logits, sampler, rows, context.seen_tokens, count=TOP_K).token_ids.tolist()
            candidates: dict[DraftPath | None, list[int]] = dict(zip(keys, best, strict=True))
            self._candidates.append(candidates)
            level = [
                (tree.add(after[rank], node, self.name), template_child)
                for (node, template_node), path in zip(level, paths, strict=True)
                for after in [_after(candidates, path)]
                for rank, template_child in template[template_node]
                if rank < len(after)
            ]
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Count which candidates were right."""
        if outcome.logits is not None and outcome.root_position == self._draft_position:
            self._update_probabilities([outcome.sampled_tokens[node] for node in outcome.path])
        self._candidates = []

    def forget(self, length: int) -> None:
        self._candidates = []

    def _update_probabilities(self, sampled_tokens: list[int]) -> None:
        """Compare the candidates of each depth with the target's token there, along the accepted path."""
        for depth, (probabilities, candidates) in enumerate(
            zip(self.acceptance_probabilities, self._candidates, strict=False)
        ):
            after = _after(candidates, tuple(sampled_tokens[:depth]))
            if depth == len(sampled_tokens) or not after:
                return
            for rank in range(TOP_K):
                is_right = rank < len(after) and after[rank] == sampled_tokens[depth]
                probabilities[rank] += LEARNING_RATE * (is_right - probabilities[rank])


def _after(candidates: Mapping[DraftPath | None, list[int]], path: DraftPath) -> list[int]:
    return candidates.get(None) or candidates.get(path, [])


def sparse_tree(probabilities: list[list[float]], max_nodes: int) -> list[list[tuple[int, int]]]:
    """The most probable tree: for every node, root first, the ranks and nodes of its children.

    `probabilities[d][r]`: the candidate of rank r at depth d + 1 is right. With [[0.5, 0.4], [0.6, 0.1]] and 3 nodes:
    [[(0, 1), (1, 2)], [(0, 3)], [], []].
    """
    children: list[list[tuple[int, int]]] = [[]]
    queue: list[tuple[float, int, int, int]] = []  # negative path probability, depth, parent, rank

    def push_children(node: int, depth: int, path_probability: float) -> None:
        if depth < len(probabilities):
            for rank, probability in enumerate(probabilities[depth]):
                heappush(queue, (-path_probability * probability, depth, node, rank))

    push_children(ROOT, 0, 1.0)
    while len(children) <= max_nodes and queue and -queue[0][0] >= MIN_PATH_PROBABILITY:
        negative, depth, parent, rank = heappop(queue)
        children[parent].append((rank, len(children)))
        push_children(len(children), depth + 1, -negative)
        children.append([])
    return children
