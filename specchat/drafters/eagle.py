"""A small head goes on where the target's hidden states end: EAGLE-1, -2 and -3, and MTP.

EAGLE (arXiv 2401.15077), EAGLE-2 (2406.16858: the tree), EAGLE-3 (2503.01840: several taps) and the multi-token
prediction of DeepSeek-V3 (2412.19437) differ in the head alone, so they are one drafter. A head reads *pairs*: the
feature of token t and the embedding of token t + 1, at position t, and speaks of token t + 2. The target leaves true
features of every token it has read; beyond the text the head is fed its own output.

Keys and values of the head that stay are those of true pairs. What drafting adds is taken back at the end of it.
A head looks back no further than the length that it was trained on.

Under the classic rule a head draws a chain, and its length is what was asked for, whatever comes out of the dice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.cache import SCRATCH_ROWS, KVCache, KVPool
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import Model
from specchat.engine.sampling import LogitRows
from specchat.engine.tree import ROOT, DraftSample, DraftTree
from specchat.errors import CacheError
from specchat.forward.batch import RowBatch

PREFILL_CHUNK_PAIRS = 128  # pairs of a prompt in one pass
SHORTLIST = 16  # best tokens of a node among which each has its chance
MIN_LOG_PROBABILITY = log(0.02)  # a guess with less chance is not worth a row of the target's pass


class DraftHeadOutput(Protocol):
    """What a head says at the rows that it was asked about."""

    @property
    def logits(self) -> Tensor: ...  # [scored, Vd]
    @property
    def hidden_states(self) -> Tensor: ...  # [scored, D], to be fed back


class DraftHead(Protocol):
    """A block over pairs, with a cache of its own."""

    kind: str
    hidden_state_layers: tuple[int, ...]
    context_window: int  # pairs that it was trained to look back
    draft_to_target_ids: (
        Tensor | None
    )  # the target's token of every column of the logits [Vd]; None: columns are tokens
    pool: KVPool

    def embed(self, tokens: Tensor) -> Tensor:
        """[n] -> [n, D]"""
        ...

    def fuse(self, hidden_states: Tensor) -> Tensor:
        """[n, taps * D] -> [n, D]"""
        ...

    def forward(
        self, hidden_states: Tensor, embeddings: Tensor, batch: RowBatch, cache: KVCache, logit_rows: int | None = None
    ) -> DraftHeadOutput:
        """Read pairs, and speak of the last `scored` of them, or of all.

        Their keys and values go behind `cache.length`, uncommitted.
        """
        ...


@dataclass(frozen=True)
class TreeConfig:
    """How a tree is grown: so many passes of the head, so many nodes in each, so many nodes kept."""

    depth: int = 5
    width: int = 4
    max_draft_tokens: int = 16
    min_level_probability: float = (
        0.4  # a pass of the head whose nodes hold with less chance, all together, is not made
    )


CHAIN_CONFIG = TreeConfig(depth=4, width=1, max_draft_tokens=4)


@dataclass(frozen=True)
class _DraftNode:
    """A token that the head may be right about."""

    token: int
    parent: int  # among all guesses; ROOT for those behind the text
    log_probability: float  # logarithm of the chance that it and all above it hold
    sample: DraftSample | None = None  # how it came about, if by dice of the drafter's own


class EagleDrafter(Drafter):
    """A chain or a dynamic tree by a head. It belongs to one text; the head's weights are shared."""

    def __init__(self, head: DraftHead, target: Model, tree_config: TreeConfig | None = None) -> None:
        self.head, self.target = head, target
        self.tree_config = tree_config or (TreeConfig() if target.supports_trees else CHAIN_CONFIG)
        self.name, self.hidden_state_layers = head.kind, head.hidden_state_layers
        self.cache = head.pool.open()
        self.hidden_states = HiddenStateBuffer()
        self._first_position = 0  # position of row 0 of the cache

    def propose(self, context: DraftContext) -> DraftTree:
        """The likeliest guesses, at most `budget`; none while the target's hidden states of the text are missing."""
        tree, nodes = DraftTree(context.tokens[-1]), min(self.tree_config.max_draft_tokens, context.max_draft_tokens)
        if (
            self.hidden_states.end != len(context.tokens) - 1
            or self.hidden_states.start == self.hidden_states.end
            or nodes <= 0
        ):
            return tree
        try:
            with self.head.pool.acquire_slot(
                self.cache, min(len(context.tokens), 2 * self.head.context_window) + SCRATCH_ROWS
            ):
                said = self._prefill(context.tokens)
                known = self.cache.length
                try:
                    return _TreeBuilder(self, context, nodes).build(said)
                finally:
                    self.cache.rollback(known)
        except CacheError:  # no room for the head's keys and values: the answer goes on without guesses
            return tree

    def observe(self, outcome: Outcome) -> None:
        """Keep the hidden states of what became sure."""
        self.hidden_states.observe(outcome, self.target.hidden_state_layers, self.hidden_state_layers)

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.hidden_states.truncate(length)
        self.cache.rollback(max(length - 1 - self._first_position, 0))  # a pair also holds the token after its own

    def draft_pass(self, position: int, draft_mask: Tensor, tokens: list[int]) -> RowBatch:
        """A pass of guesses at one position: each sees the true pairs, and behind them what its row of `rows` says.

        rows: bool [len(tokens), guesses read so far and these]
        """
        length, count = self.cache.length, len(tokens)
        true = length + count - draft_mask.shape[1]
        sees = torch.cat((torch.ones(count, true, dtype=torch.bool), draft_mask), dim=1)
        if (outdated := position - self.head.context_window + 1 - self._first_position) > 0:
            sees[:, :outdated] = False
        return RowBatch(tokens, torch.full((count,), position), sees, length, self._first_position)

    def _prefill(self, tokens: list[int]) -> DraftHeadOutput:
        """Read the true pairs that are new; what the head says after the last one."""
        hidden = self.head.fuse(self.hidden_states.slice_from(self._first_unread(len(tokens) - 1)))
        while len(hidden) > PREFILL_CHUNK_PAIRS:
            self._prefill_pairs(tokens, hidden[:PREFILL_CHUNK_PAIRS], logit_rows=0)
            hidden = hidden[PREFILL_CHUNK_PAIRS:]
        return self._prefill_pairs(tokens, hidden, logit_rows=1)

    def _first_unread(self, known_tokens: int) -> int:
        """The first pair that is to be read, after forgetting what is too old or does not connect."""
        self.cache.rollback(known_tokens - 1 - self._first_position)  # the last pair is read again rather than nothing
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, known_tokens, self.head.context_window
        )
        return self._first_position + self.cache.length

    def _prefill_pairs(self, tokens: list[int], hidden_states: Tensor, logit_rows: int) -> DraftHeadOutput:
        """Take in the next true pairs, with these features; what the head says after the last `scored` of them."""
        length, count, window = self.cache.length, len(hidden_states), self.head.context_window
        position = self._first_position + length
        following = tokens[position + 1 : position + 1 + count]
        sees = torch.ones(count, length + count, dtype=torch.bool).tril_(length)
        nodes = RowBatch(following, torch.arange(position, position + count), sees, length, self._first_position)
        if length + count > window:
            nodes = replace(nodes, sees=nodes.sliding_window_mask(window))
        said = self.head.forward(hidden_states, self._embed(following), nodes, self.cache, logit_rows)
        self.cache.commit(list(range(count)))
        return said

    def _embed(self, tokens: list[int]) -> Tensor:
        return self.head.embed(copy_to_device(tokens, self.head.pool.layout.device))


class _TreeBuilder:
    """One tree while it grows, level by level: a pass of the head over the best guesses of the last level."""

    def __init__(self, drafter: EagleDrafter, context: DraftContext, max_draft_tokens: int) -> None:
        self.drafter, self.context, self.max_draft_tokens = drafter, context, max_draft_tokens
        self.tree_config = (
            replace(drafter.tree_config, width=1) if context.sampler.wants_draft_samples else drafter.tree_config
        )
        self.nodes = [_DraftNode(context.tokens[-1], -1, 0.0)]

    def build(self, head_output: DraftHeadOutput) -> DraftTree:
        """The tree below what the head said after the text."""
        asked, hidden, rows = [ROOT], head_output.hidden_states, torch.zeros(1, 0, dtype=torch.bool)
        level = self._add_level(head_output.logits, asked, depth=0)
        for depth in range(1, min(self.tree_config.depth, self.max_draft_tokens)):
            best = self._nodes_to_expand(level)
            if not best:
                break
            above = [asked.index(self.nodes[guess].parent) for guess in best]
            rows = torch.cat((rows[above], torch.eye(len(best), dtype=torch.bool)), dim=1)
            head_output = self._forward_level(hidden[above], best, rows, depth)
            asked, hidden = best, head_output.hidden_states
            level = self._add_level(head_output.logits, asked, depth)
        return self._to_draft_tree()

    def _forward_level(
        self, hidden_states: Tensor, node_ids: list[int], draft_mask: Tensor, depth: int
    ) -> DraftHeadOutput:
        """Let the head read these guesses. `rows` [n, rows of all levels]: which of the guesses each may see."""
        head, cache = self.drafter.head, self.drafter.cache
        tokens = [self.nodes[guess].token for guess in node_ids]
        nodes = self.drafter.draft_pass(len(self.context.tokens) - 2 + depth, draft_mask, tokens)
        said = head.forward(hidden_states, head.embed(copy_to_device(tokens, hidden_states.device)), nodes, cache)
        cache.commit(list(range(len(tokens))))  # for the levels below; taken back when the tree is done
        return said

    def _add_level(self, logits: Tensor, parents: list[int], depth: int) -> list[int]:
        """Guess after each parent, a row of logits each; the new guesses."""
        sampler, ids = self.context.sampler, self.drafter.head.draft_to_target_ids
        paths = [self._path_tokens(parent) for parent in parents] if sampler.has_penalties else None
        rows = LogitRows([len(self.context.tokens) - 1 + depth] * len(parents), paths, ids)
        if sampler.wants_draft_samples:
            return self._add_sample(sampler.sample_draft(logits, rows, self.context.seen_tokens), parents[0])
        best = sampler.rank(logits, rows, self.context.seen_tokens, count=SHORTLIST)
        tokens = best.token_ids[:, : self.tree_config.width].tolist()
        chances = best.scores.log_softmax(-1)[:, : self.tree_config.width].clamp_(max=0.0).tolist()
        first = len(self.nodes)
        for parent, ours, theirs in zip(parents, tokens, chances, strict=True):
            above = self.nodes[parent].log_probability
            self.nodes += [
                _DraftNode(token, parent, above + chance) for token, chance in zip(ours, theirs, strict=True)
            ]
        return list(range(first, len(self.nodes)))

    def _add_sample(self, sample: DraftSample, parent: int) -> list[int]:
        """Guess what was drawn. It counts as certain: no draw may be left out for what it is."""
        self.nodes.append(_DraftNode(sample.token, parent, 0.0, sample))
        return [len(self.nodes) - 1]

    def _nodes_to_expand(self, level: list[int]) -> list[int]:
        """The best of a level that can still have a guess in the tree below them; none when hardly any will hold."""
        kept = set(self._best_nodes())
        best = sorted((guess for guess in level if guess in kept), key=self._sort_key)[: self.tree_config.width]
        return (
            best
            if sum(exp(self.nodes[guess].log_probability) for guess in best) >= self.tree_config.min_level_probability
            else []
        )

    def _best_nodes(self) -> list[int]:
        """The best guesses of all levels; with each its parents, which are never worse and stand before it."""
        likely = [
            guess for guess in range(1, len(self.nodes)) if self.nodes[guess].log_probability > MIN_LOG_PROBABILITY
        ]
        return sorted(likely, key=self._sort_key)[: self.max_draft_tokens]

    def _sort_key(self, node_id: int) -> tuple[float, int]:
        return -self.nodes[node_id].log_probability, node_id

    def _to_draft_tree(self) -> DraftTree:
        tree, nodes = DraftTree(self.nodes[ROOT].token), {ROOT: ROOT}
        for guess in sorted(self._best_nodes()):
            made = self.nodes[guess]
            parent, name = nodes[made.parent], self.drafter.name
            nodes[guess] = (
                tree.add_sample(made.sample, parent, name) if made.sample else tree.add(made.token, parent, name)
            )
        return tree

    def _path_tokens(self, node_id: int) -> list[int]:
        tokens: list[int] = []
        while node_id != ROOT:
            tokens.append(self.nodes[node_id].token)
            node_id = self.nodes[node_id].parent
        return tokens[::-1]
