"""A head fills a block of masks in one pass, and the block is the guess: DFlash (arXiv 2602.06036).

The head reads the target's hidden states of the text, once for every token, as keys and values of its own. A block is
the last sure token and masks behind it. All places are guessed at once and none knows what the others became, so the
guesses are a chain: the best of each place, or, under the classic rule, one drawn for each.

Nothing of a block stays in the head's cache; what stays are the states of the text, so taking text back is dropping
rows. A head looks back no further than the length that it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Protocol

from torch import Tensor

from specchat.engine.cache import SCRATCH_ROWS, KVCache, KVPool
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import CacheError

PREFILL_CHUNK_TOKENS = 128  # states of a prompt that are read in one pass
SHORTLIST = 16  # best tokens of a place among which each has its chance
MIN_LOG_PROBABILITY = log(
    0.02
)  # a guess that holds with less chance, all before it included, is not worth a row of a pass


class BlockDraftHead(Protocol):
    """A head that fills blocks, with a cache of its own."""

    kind: str
    hidden_state_layers: tuple[int, ...]
    context_window: int  # tokens of the text that it was trained to look back
    tokens_ahead: int  # places ahead that it speaks of
    draft_to_target_ids: (
        Tensor | None
    )  # the target's token of every column of the logits [Vd]; None: columns are tokens
    pool: KVPool

    def prefill(self, hidden_states: Tensor, position: int, cache: KVCache) -> None:
        """Take in the target's states of the tokens from `position` on, and commit them. [n, taps * D]"""
        ...

    def draft_block(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        cache: KVCache,
        first_position: int = 0,
        tokens_ahead: int | None = None,
    ) -> Tensor:
        """What it says of the next `ahead` places behind each sure token; `first`: position of row 0. [n, ahead, Vd]"""
        ...


class DFlashDrafter(Drafter):
    """A chain by a head that fills blocks. It belongs to one text; the head's weights are shared."""

    def __init__(self, head: BlockDraftHead, target: Model) -> None:
        self.head, self.target = head, target
        self.name, self.hidden_state_layers = head.kind, head.hidden_state_layers
        self.cache = head.pool.open()
        self.hidden_states = HiddenStateBuffer()
        self._first_position = 0  # position of row 0 of the cache

    def propose(self, context: DraftContext) -> DraftTree:
        """The best of each place, at most `budget`; none while the target's hidden states of the text are missing."""
        tree, known = DraftTree(context.tokens[-1]), len(context.tokens) - 1
        ahead = min(self.head.tokens_ahead, context.max_draft_tokens)
        if self.hidden_states.end != known or self.hidden_states.start == known or ahead <= 0:
            return tree
        try:
            with self.head.pool.acquire_slot(self.cache, min(known, 2 * self.head.context_window) + SCRATCH_ROWS):
                self._prefill(known)
                said = self.head.draft_block([context.tokens[-1]], [known], self.cache, self._first_position, ahead)[0]
        except CacheError:  # no room for the head's keys and values: the answer goes on without guesses
            return tree
        if context.sampler.wants_draft_samples:
            self._add_sampled_chain(tree, context, said)
        else:
            self._add_best_chain(tree, context, said)
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the hidden states of what became sure."""
        self.hidden_states.observe(outcome, self.target.hidden_state_layers, self.hidden_state_layers)

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.hidden_states.truncate(length)
        self.cache.rollback(max(length - self._first_position, 0))

    def _prefill(self, known_tokens: int) -> None:
        """Read the states of the text that are new, as far as the head looks back."""
        begin = self._first_unread(known_tokens)
        if begin == known_tokens:
            return
        unread = self.hidden_states.slice_from(begin)
        for start in range(0, len(unread), PREFILL_CHUNK_TOKENS):
            self.head.prefill(unread[start : start + PREFILL_CHUNK_TOKENS], begin + start, self.cache)

    def _first_unread(self, known_tokens: int) -> int:
        """The first token whose states are to be read, after forgetting what is too old or does not connect."""
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, known_tokens, self.head.context_window
        )
        return self._first_position + self.cache.length

    def _add_best_chain(self, tree: DraftTree, context: DraftContext, block_logits: Tensor) -> None:
        """The best of each place under the dice of that place, for as long as the chain has a chance."""
        node, chance = ROOT, 0.0
        at_once = 1 if context.sampler.has_penalties else len(block_logits)
        for start in range(0, len(block_logits), at_once):
            rows = self._logit_rows(tree, context, start, at_once)
            best = context.sampler.rank(
                block_logits[start : start + at_once], rows, context.seen_tokens, count=SHORTLIST
            )
            chances = best.scores.log_softmax(-1)[:, 0].clamp_(max=0.0).tolist()
            for token, its_own in zip(best.token_ids[:, 0].tolist(), chances, strict=True):
                chance += its_own
                if chance < MIN_LOG_PROBABILITY:
                    return
                node = tree.add(token, node, self.name)

    def _add_sampled_chain(self, tree: DraftTree, context: DraftContext, block_logits: Tensor) -> None:
        """One token drawn for each place. Whatever the dice say, the chain is as long as was asked for."""
        node = ROOT
        for ahead in range(len(block_logits)):
            rows = self._logit_rows(tree, context, ahead, 1)
            draw = context.sampler.sample_draft(block_logits[ahead : ahead + 1], rows, context.seen_tokens)
            node = tree.add_sample(draw, node, self.name)

    def _logit_rows(self, tree: DraftTree, context: DraftContext, start: int, count: int) -> LogitRows:
        """Where the next places stand; a rule that looks back sees the guesses before, and is asked place by place."""
        first = len(context.tokens) - 1 + start
        paths = [tree.tokens[1:]] if context.sampler.has_penalties else None
        return LogitRows(list(range(first, first + count)), paths, self.head.draft_to_target_ids)
