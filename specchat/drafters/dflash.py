"""DFlash (arXiv 2602.06036) and DSpark: a head fills a block of mask tokens in one pass, and the block is the draft.

The head turns the target's hidden states of the text into keys and values of its own, once for every token. A block is
the last committed token with mask tokens behind it. All positions are predicted at once and independently of each
other, so the draft is a chain: the best token of each position, or one sample for each with rejection sampling. With
DSpark a position also depends on the draft token before it, and a confidence head can end the chain early.

The head's cache holds only the states of the text, so a truncation drops rows. The head attends to no more tokens than
its training length.
"""

from __future__ import annotations

from functools import partial
from math import log
from typing import TYPE_CHECKING, cast

from specchat.engine.cache import SCRATCH_ROWS
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import CacheError

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources
    from specchat.heads.block_correction import DraftedBlocks
    from specchat.heads.dflash_head import DFlashHead

SHORTLIST = 16  # best tokens of a position that get a probability
MIN_LOG_PROBABILITY = log(0.02)  # of a chain: draft tokens below are not worth a row of a pass


class DFlashDrafter(Drafter):
    """Drafts a chain with a block head. It belongs to one text; the head's weights are shared."""

    def __init__(self, head: DFlashHead, target: Model) -> None:
        self.head, self.target = head, target
        self.name, self.hidden_state_layers = head.kind, head.hidden_state_layers
        self.cache = head.pool.open()
        self.hidden_states = HiddenStateBuffer()
        self._first_position = 0  # position of row 0 of the cache

    def propose(self, context: DraftContext) -> DraftTree:
        """The best token of each position; none while the target's hidden states of the text are missing."""
        tree, prefix_length = DraftTree(context.tokens[-1]), len(context.tokens) - 1
        ahead = min(self.head.tokens_ahead, context.max_draft_tokens)
        if self.hidden_states.end != prefix_length or self.hidden_states.start == prefix_length or ahead <= 0:
            return tree
        rows = min(prefix_length, 2 * self.head.context_window) + SCRATCH_ROWS
        try:
            with self.head.pool.acquire_slot(self.cache, rows):
                self._prefill(prefix_length)
                block = self.head.draft_block(
                    [context.tokens[-1]], [prefix_length], self.cache, self._first_position, ahead
                )
        except CacheError:  # no memory for the head's KV cache: continue without draft tokens
            return tree
        if context.sampler.wants_draft_samples:
            self._add_sampled_chain(tree, context, block)
        else:
            self._add_best_chain(tree, context, block)
        return tree

    def observe(self, outcome: Outcome) -> None:
        self.hidden_states.observe(outcome, self.target.hidden_state_layers, self.hidden_state_layers)

    def memory_bytes(self) -> int:
        return self.hidden_states.bytes

    def forget(self, length: int) -> None:
        self.hidden_states.truncate(length)
        self.cache.rollback(max(length - self._first_position, 0))

    def _prefill(self, prefix_length: int) -> None:
        """Write the new hidden states of the text to the head's cache, within its context window."""
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, prefix_length, self.head.context_window
        )
        position = self._first_position + self.cache.length
        if position == prefix_length:
            return
        for chunk in self.hidden_states.chunks_from(position):
            self.head.prefill(chunk, self._first_position + self.cache.length, self.cache)

    def _add_best_chain(self, tree: DraftTree, context: DraftContext, block: DraftedBlocks) -> None:
        """Add the best token of each position under the noise there, while the chain is probable enough."""
        node, log_probability, slots = ROOT, 0.0, block.logits.shape[1]
        chunk = 1 if context.sampler.has_penalties or block.is_sequential else slots
        for start in range(0, slots, chunk):
            logits, log_confidence = block.next_slot(tree.tokens[-1:]) if chunk == 1 else (block.logits[0], None)
            rows = self._logit_rows(tree, context, start, chunk)
            best = context.sampler.rank(logits, rows, context.seen_tokens, count=SHORTLIST)
            if log_confidence is None:
                log_confidence = best.scores.log_softmax(-1)[:, 0].clamp_(max=0.0)
            for token, token_log_probability in zip(
                best.token_ids[:, 0].tolist(), log_confidence.tolist(), strict=True
            ):
                log_probability += token_log_probability
                if log_probability < MIN_LOG_PROBABILITY:
                    return
                node = tree.add(token, node, self.name)

    def _add_sampled_chain(self, tree: DraftTree, context: DraftContext, block: DraftedBlocks) -> None:
        """Add one sample for each position, while the chain is probable enough.

        Whether there is a sample must not depend on its value. The confidence in it depends on those before it only.
        """
        node, log_probability = ROOT, 0.0
        for ahead in range(block.logits.shape[1]):
            logits, log_confidence = block.next_slot(tree.tokens[-1:])
            log_probability += float(log_confidence) if log_confidence is not None else 0.0
            if log_probability < MIN_LOG_PROBABILITY:
                return
            rows = self._logit_rows(tree, context, ahead, 1)
            node = tree.add_sample(context.sampler.sample_draft(logits, rows, context.seen_tokens), node, self.name)

    def _logit_rows(self, tree: DraftTree, context: DraftContext, start: int, count: int) -> LogitRows:
        """The rows of the next positions; penalties depend on the draft tokens before, one position at a time."""
        first = len(context.tokens) - 1 + start
        paths = [tree.tokens[1:]] if context.sampler.has_penalties else None
        return LogitRows(list(range(first, first + count)), paths, self.head.draft_to_target_ids)


def _build(resources: DraftingResources, kind: str) -> Drafter | None:
    head = resources.heads.get(kind)
    return DFlashDrafter(cast("DFlashHead", head), resources.target) if head is not None else None


build_dflash, build_dspark = (partial(_build, kind=kind) for kind in ("dflash", "dspark"))
