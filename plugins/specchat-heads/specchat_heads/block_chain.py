"""The chain of a block whose positions were predicted in one pass: the drafts of P-EAGLE and of block heads.

The draft is the best token of each position. Where a position depends on the token before it, as in DFlash-2 and
DSpark, positions are read one by one. Knows no head but the output of its pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from torch import Tensor

from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.forward.native.native_sampling import rank_rows

SHORTLIST = 16  # best tokens of a position that get a probability
MIN_LOG_PROBABILITY = log(0.02)  # of a chain: draft tokens below are not worth a row of a pass


class SlotOutput(NamedTuple):
    """One slot of every block."""

    logits: Tensor  # [n, Vd]
    log_confidence: Tensor | None  # of the slot's token being accepted; None where the head predicts none [n]


class DraftedBlocks:
    """The slots of n blocks. A head whose slots depend on the token before them reads them in its own subclass."""

    is_sequential = False  # whether the slots must be read one by one

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # [n, slots, Vd]
        self._slot = 0

    def next_slot(self, _tokens: Sequence[int] | Tensor) -> SlotOutput:
        """The next slot of every block, after these tokens of the target. [n]"""
        self._slot += 1
        return SlotOutput(self.logits[:, self._slot - 1], None)


def chain_of_block(context: DraftContext, block: DraftedBlocks, source: str, ids: Tensor | None) -> DraftTree:
    """The best token of each position of one block under the noise there, while the chain is probable enough.

    `ids`: the target's token of each column of a draft vocabulary [Vd]. Penalties depend on the draft tokens before, so
    with them a chain is read position by position.
    """
    tree, sampler, first = DraftTree(context.tokens[-1]), context.sampler, len(context.tokens) - 1
    node, log_probability, slots = ROOT, 0.0, block.logits.shape[1]
    chunk = 1 if sampler.has_penalties or block.is_sequential else slots
    for start in range(0, slots, chunk):
        logits, log_confidence = block.next_slot(tree.tokens[-1:]) if chunk == 1 else (block.logits[0], None)
        paths = [tree.tokens[1:]] if sampler.has_penalties else None
        rows = LogitRows(list(range(first + start, first + start + chunk)), paths, ids)
        best = rank_rows(logits, sampler, rows, context.seen_tokens, count=SHORTLIST)
        if log_confidence is None:
            log_confidence = best.scores.log_softmax(-1)[:, 0].clamp_(max=0.0)
        for token, token_log_probability in zip(best.token_ids[:, 0].tolist(), log_confidence.tolist(), strict=True):
            log_probability += token_log_probability
            if log_probability < MIN_LOG_PROBABILITY:
                return tree
            node = tree.add(token, node, source)
    return tree
