"""Medusa (arXiv 2401.10774): several heads on the target's last hidden state, each for one position ahead.

Only exact verification is supported: the paper's "typical" acceptance changes the text. The heads are independent of
each other, so the tree combines their best candidates. The shape of the tree follows from the measured acceptance of
each candidate of each head, starting from a prior. At T > 0 the candidates are ranked with the noise of their position.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, cast

from torch import Tensor

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import storage_bytes
from specchat.engine.model import FINAL_NORM, Model, select_layers
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources
    from specchat.heads.networks import MedusaHead

TOP_K = 8  # candidates of each head
# Acceptance probability of the candidate of each rank, for the first head.
PRIOR_PROBABILITIES = (0.5, 0.13, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01)
DEPTH_DECAY = 0.75  # factor on these for each further head
LEARNING_RATE = 0.02
MIN_PATH_PROBABILITY = 0.01  # less probable paths are not worth a row


class Medusa(Drafter):
    """Drafts a tree whose shape follows the measured acceptance. It stores one hidden state of the text."""

    name = "medusa"
    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, head: MedusaHead, target: Model) -> None:
        self.head, self.target = head, target
        self.acceptance_probabilities = [
            [probability * DEPTH_DECAY**ahead for probability in PRIOR_PROBABILITIES]
            for ahead in range(head.tokens_ahead)
        ]
        self._hidden_state: Tensor | None = None  # of the last token in the target's cache [1, D]
        self._hidden_state_end = 0  # tokens up to that one, inclusive
        self._candidates: list[list[list[int]]] = []  # of the last tree, by depth: one list, or one for every parent
        self._draft_position = -1  # position of the root of that tree

    def propose(self, context: DraftContext) -> DraftTree:
        tree, sampler = DraftTree(context.tokens[-1]), context.sampler
        self._candidates, self._draft_position = [], len(context.tokens) - 1
        if self._hidden_state is None or self._hidden_state_end != len(context.tokens) - 1:
            return tree
        template = sparse_tree(self.acceptance_probabilities, context.max_draft_tokens)
        level = [(ROOT, ROOT)]  # nodes of the tree, with their nodes of the template
        for ahead, logits in enumerate(self.head.logits(self._hidden_state)):
            level = [(node, template_node) for node, template_node in level if template[template_node]]
            if not level:
                break
            paths = [tree.path_tokens(node) for node, _template_node in level] if sampler.has_penalties else None
            count = len(level) if paths else 1
            rows = LogitRows([len(context.tokens) - 1 + ahead] * count, paths)
            best = sampler.rank(logits.expand(count, -1), rows, context.seen_tokens, count=TOP_K).token_ids.tolist()
            self._candidates.append(best)
            level = [
                (tree.add(best[parent % count][rank], node, self.name), template_child)
                for parent, (node, template_node) in enumerate(level)
                for rank, template_child in template[template_node]
                if rank < len(best[0])
            ]
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Store the last hidden state, and count which candidates were right."""
        if outcome.logits is not None and outcome.root_position == self._draft_position:
            self._update_probabilities([outcome.sampled_tokens[node] for node in outcome.path])
        self._candidates = []
        if outcome.hidden_states is not None and FINAL_NORM in self.target.hidden_state_layers:
            self._hidden_state = select_layers(
                outcome.hidden_states[-1:], self.target.hidden_state_layers, self.hidden_state_layers
            )
            self._hidden_state_end = outcome.root_position + len(outcome.path)

    def memory_bytes(self) -> int:
        return storage_bytes([self._hidden_state] if self._hidden_state is not None else [])

    def forget(self, length: int) -> None:
        if length < self._hidden_state_end:
            self._hidden_state, self._hidden_state_end = None, 0
        self._candidates = []

    def _update_probabilities(self, sampled_tokens: list[int]) -> None:
        """Compare the candidates of each depth with the target's token there, along the accepted path."""
        for probabilities, candidates, token in zip(
            self.acceptance_probabilities, self._candidates, sampled_tokens, strict=False
        ):
            for rank in range(TOP_K):
                is_right = rank < len(candidates[0]) and candidates[0][rank] == token
                probabilities[rank] += LEARNING_RATE * (is_right - probabilities[rank])


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


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get("medusa")
    return Medusa(cast("MedusaHead", head), resources.target) if head is not None else None
