"""The loop: draft, verify, accept, commit. It treats all drafters alike.

A `Writing` is a text and everything that remembers it: the target's cache and the drafters. It is the only place
where they are moved, so that after a stop, a cancel or an edit they all know the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from specchat.engine.accept import accept
from specchat.engine.cache import SCRATCH_ROWS, KVCache
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.grammar import Grammar, advance_all, constrain_tree
from specchat.engine.model import MAX_PROMPT_HIDDEN_STATES, Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree


@dataclass(frozen=True)
class Step:
    """One pass of the target: what was guessed, what became sure, and what it cost."""

    tree: DraftTree
    path: list[int]  # nodes kept, root first
    committed_tokens: list[int]  # accepted guesses, then the target's own token
    draft_seconds: float
    verify_seconds: float

    @property
    def accepted(self) -> int:
        """How many guesses held."""
        return len(self.path) - 1

    @property
    def drafted(self) -> int:
        """How many guesses were verified."""
        return len(self.tree) - 1

    @property
    def accepted_sources(self) -> list[str]:
        """Who guessed each of the accepted."""
        return [self.tree.sources[node] for node in self.path[1:]]


@dataclass(frozen=True)
class GenerationConfig:
    """How an answer is to be decoded."""

    drafter: Drafter
    sampler: Sampler
    max_draft_tokens: int  # most guesses in one pass
    max_new_tokens: int  # most tokens of the answer
    stop_token_ids: frozenset[int] = frozenset()  # tokens that end it
    grammar: Grammar | None = None  # what form it has; it has read nothing yet


class Generation:
    """The sure tokens of one text, with the cache and the drafters that know it.

    Invariant between steps: the cache holds every token but the last, or fewer.
    """

    def __init__(self, target: Model, drafters: tuple[Drafter, ...] = ()) -> None:
        self.target, self.drafters = target, drafters
        self.cache: KVCache = target.pool.open()
        self.tokens: list[int] = []

    def replace_tokens(self, tokens: list[int]) -> int:
        """Make `tokens` the text, and keep what is known of their common beginning; returns how much that is."""
        shared = 0
        for ours, theirs in zip(self.tokens, tokens, strict=False):
            if ours != theirs:
                break
            shared += 1
        self.truncate(shared)
        self.tokens += tokens[shared:]
        self._truncate_caches(len(tokens) - 1)
        return self.cache.length

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens, everywhere."""
        del self.tokens[length:]
        self._truncate_caches(length - 1)  # the last token is read again, together with what follows it

    def rows_needed(self, max_new_tokens: int) -> int:
        """Rows of cache that the text, an answer and the guesses past its end may need."""
        return len(self.tokens) + max_new_tokens + SCRATCH_ROWS

    def prefill(self) -> Iterator[int]:
        """Take in the text but its last token, chunk by chunk; yields how many tokens are known after each."""
        while (unread := len(self.tokens) - 1 - self.cache.length) > 0:
            start = self.cache.length
            chunk = self.tokens[start : start + min(unread, self.target.prefill_chunk)]
            output = self.target.prefill(chunk, self.cache)
            if any(drafter.hidden_state_layers for drafter in self.drafters):
                self._observe_prompt(chunk, start, output.hidden_states)
            yield self.cache.length

    def decode(self, config: GenerationConfig) -> Iterator[Step]:
        """Extend the text, a step at a time, until a stop token or the limit. The prompt must have been read."""
        left = config.max_new_tokens
        prefix = config.sampler.make_seen_tokens(self.tokens, self.target.vocab_size, self.target.pool.layout.device)
        while left > 0:
            begun = perf_counter()
            sampler = config.sampler.at_step(len(self.tokens))
            budget = min(config.max_draft_tokens, left - 1, self.target.max_rows - 1)
            context = DraftContext(self.tokens, sampler, budget, prefix, self.cache)
            tree = config.drafter.propose(context) if budget > 0 else DraftTree(self.tokens[-1])
            if not self.target.supports_trees:
                tree = tree.first_chain(budget)
            tree, allowed = (tree, None) if config.grammar is None else constrain_tree(tree, config.grammar, budget)
            drafted = perf_counter()
            output = self.target.forward(tree, self.cache)
            picks = sampler.sample(output.logits, sampler.rows_of_tree(tree, len(self.tokens), allowed), prefix)
            path = _truncate_at_stop(tree, accept(tree, picks), config.stop_token_ids)[:left]
            self.cache.commit(path)
            features = output.hidden_states[path] if output.hidden_states is not None else None
            outcome = Outcome(
                tree, path, picks, len(self.tokens) - 1, features, output.logits,
                draft_seconds=drafted - begun, verify_seconds=perf_counter() - drafted,
            )  # fmt: skip
            for drafter in self.drafters:
                drafter.observe(outcome)
            self.tokens += outcome.committed_tokens
            if prefix is not None:
                prefix.extend(outcome.committed_tokens)
            if config.grammar is not None:
                advance_all(config.grammar, outcome.committed_tokens)
            left -= len(outcome.committed_tokens)
            yield Step(tree, path, outcome.committed_tokens, drafted - begun, perf_counter() - drafted)
            if outcome.committed_tokens[-1] in config.stop_token_ids:
                return

    def add_drafter(self, drafter: Drafter) -> None:
        """From now on this drafter hears of the text, too; what was said before it must do without."""
        self.drafters = (*self.drafters, drafter)

    def close(self) -> None:
        """Give back the rows of the text."""
        self.target.pool.close(self.cache)

    def _truncate_caches(self, length: int) -> None:
        self.cache.rollback(max(length, 0))
        for drafter in self.drafters:
            drafter.forget(self.cache.length)

    def _observe_prompt(self, chunk: list[int], start: int, hidden_states: Tensor | None) -> None:
        remaining = len(self.tokens) - 1 - start
        if remaining > MAX_PROMPT_HIDDEN_STATES + len(chunk):
            return
        tree = DraftTree(chunk[0])
        tree.add_chain(chunk[1:], source="text")
        picks = self.tokens[start + 1 : start + 1 + len(chunk)]
        outcome = Outcome(tree, list(range(len(chunk))), picks, start, hidden_states)
        for drafter in self.drafters:
            drafter.observe(outcome)


def _truncate_at_stop(tree: DraftTree, path: list[int], stop_token_ids: frozenset[int]) -> list[int]:
    """Cut the path before the first stop token: the target picks that token itself."""
    for count, node in enumerate(path[1:], start=1):
        if tree.tokens[node] in stop_token_ids:
            return path[:count]
    return path
