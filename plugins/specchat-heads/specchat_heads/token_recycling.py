"""Token Recycling (arXiv 2408.08696): drafts from the target's earlier candidates after each token.

For every token it stores the best candidates of the target's last logits after it, from all nodes of a tree, also the
rejected ones. The draft follows them breadth-first through a tree of a fixed shape. At T > 0 the stored logits are
ranked with the shared noise. It knows logits and token ids, and of the text only the last token.
"""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

import torch
from torch import Tensor

from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import storage_bytes
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.engine.truncation import keep_top_k
from specchat.forward.native.native_sampling import rank_rows

CANDIDATES_PER_TOKEN = 8
# Acceptance probability of the candidate of each rank, which gives the shape of the tree.
RANK_PROBABILITIES = (0.5, 0.15, 0.08, 0.05, 0.04, 0.03, 0.025, 0.02)
MAX_TOKEN_ID = 2**31  # above every token id
MAX_PENDING_OUTCOMES = 8  # the latest outcomes, whose logits are kept until the next proposal


@dataclass(frozen=True)
class PendingOutcome:
    """The target's logits after some tokens, still on the device."""

    tokens: list[int]
    logits: Tensor  # [N, V]


@lru_cache
def tree_template(max_nodes: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The most probable tree under RANK_PROBABILITIES: for every node, root first, the ranks and nodes of its children.

    `tree_template(3)` is (((0, 1), (1, 3)), ((0, 2),), (), ()): two candidates after the root, one after the better.
    """
    children: list[list[tuple[int, int]]] = [[]]
    queue = [(-RANK_PROBABILITIES[0], ROOT, 0)]
    while len(children) <= max_nodes:
        negative, parent, rank = heappop(queue)
        children[parent].append((rank, len(children)))
        heappush(queue, (negative * RANK_PROBABILITIES[0], len(children), 0))
        if rank + 1 < len(RANK_PROBABILITIES):
            heappush(queue, (negative / RANK_PROBABILITIES[rank] * RANK_PROBABILITIES[rank + 1], parent, rank + 1))
        children.append([])
    return tuple(map(tuple, children))


class TokenRecycling(Drafter):
    """Drafts from a table of candidates by token. The table belongs to no text, so a truncation changes nothing."""

    name = "recycling"

    def __init__(self) -> None:
        self._candidates: dict[int, list[tuple[int, float]]] = {}  # token -> candidates with logits, best first
        self._pending: deque[PendingOutcome] = deque(maxlen=MAX_PENDING_OUTCOMES)

    def propose(self, context: DraftContext) -> DraftTree:
        """The candidates of the last token, then those of the candidates, and so on."""
        self._store_pending()
        tree, template = DraftTree(context.tokens[-1]), tree_template(max(context.max_draft_tokens, 0))
        queue = [(ROOT, ROOT)]  # nodes of the tree, with their nodes of the template
        for node, template_node in queue:  # grows during the iteration: breadth-first
            if not template[template_node]:
                continue
            best = self._ranked_candidates(context, tree, node)
            queue += [
                (tree.add(best[rank], node, self.name), template_child)
                for rank, template_child in template[template_node]
                if rank < len(best)
            ]
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the logits at every node. What is best among them is computed when the drafter is asked."""
        if outcome.logits is not None:
            self._pending.append(PendingOutcome(list(outcome.tree.tokens), outcome.logits))

    def memory_bytes(self) -> int:
        return storage_bytes(outcome.logits for outcome in self._pending)

    def _store_pending(self) -> None:
        for pending in self._pending:
            best = keep_top_k(pending.logits.float(), CANDIDATES_PER_TOKEN)
            rows = zip(pending.tokens, best.columns.tolist(), best.logits.tolist(), strict=True)
            for token, ids, logits in rows:
                self._candidates[token] = list(zip(ids, logits, strict=True))
        self._pending.clear()

    def _ranked_candidates(self, context: DraftContext, tree: DraftTree, node: int) -> list[int]:
        """The candidates after a node, in the sampler's order for their stored logits."""
        sampler, seen = context.sampler, context.seen_tokens
        end = sampler.vocab_size or MAX_TOKEN_ID
        candidates = [(token, logit) for token, logit in self._candidates.get(tree.tokens[node], []) if token < end]
        ids = [token for token, _logit in candidates]
        if not ids or (sampler.temperature == 0 and not sampler.has_penalties):
            return ids
        device = seen.counts.device if seen is not None else None
        paths = [tree.path_tokens(node)] if sampler.has_penalties else None
        rows = LogitRows([len(context.tokens) - 1 + tree.depths[node]], paths, torch.tensor(ids, device=device))
        logits = torch.tensor([[logit for _token, logit in candidates]], device=device)
        return rank_rows(logits, sampler, rows, seen, len(ids)).token_ids[0].tolist()


def build(_resources: object) -> Drafter:
    return TokenRecycling()
