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
from specchat.engine.cache import SCRATCH, KVCache
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.grammar import Grammar, confined, follow
from specchat.engine.model import TAIL, Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree


@dataclass(frozen=True)
class Step:
    """One pass of the target: what was guessed, what became sure, and what it cost."""

    tree: DraftTree
    path: list[int]  # nodes kept, root first
    tokens: list[int]  # accepted guesses, then the target's own token
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
    def sources(self) -> list[str]:
        """Who guessed each of the accepted."""
        return [self.tree.sources[node] for node in self.path[1:]]


@dataclass(frozen=True)
class Plan:
    """How an answer is to be decoded."""

    drafter: Drafter
    sampler: Sampler
    budget: int  # most guesses in one pass
    limit: int  # most tokens of the answer
    stop: frozenset[int] = frozenset()  # tokens that end it
    grammar: Grammar | None = None  # what form it has; it has read nothing yet


class Writing:
    """The sure tokens of one text, with the cache and the drafters that know it.

    Invariant between steps: the cache holds every token but the last, or fewer.
    """

    def __init__(self, target: Model, drafters: tuple[Drafter, ...] = ()) -> None:
        self.target, self.drafters = target, drafters
        self.cache: KVCache = target.pool.open()
        self.tokens: list[int] = []

    def revise(self, tokens: list[int]) -> int:
        """Make `tokens` the text, and keep what is known of their common beginning; returns how much that is."""
        shared = 0
        for ours, theirs in zip(self.tokens, tokens, strict=False):
            if ours != theirs:
                break
            shared += 1
        self.cut(shared)
        self.tokens += tokens[shared:]
        self._recall(len(tokens) - 1)
        return self.cache.length

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens, everywhere."""
        del self.tokens[length:]
        self._recall(length - 1)  # the last token is read again, together with what follows it

    def rows_for(self, answer: int) -> int:
        """Rows of cache that the text, an answer and the guesses past its end may need."""
        return len(self.tokens) + answer + SCRATCH

    def read(self) -> Iterator[int]:
        """Take in the text but its last token, chunk by chunk; yields how many tokens are known after each."""
        while (unread := len(self.tokens) - 1 - self.cache.length) > 0:
            start = self.cache.length
            chunk = self.tokens[start : start + min(unread, self.target.chunk)]
            output = self.target.read(chunk, self.cache)
            if any(drafter.taps for drafter in self.drafters):
                self._tell_of_prompt(chunk, start, output.features)
            yield self.cache.length

    def steps(self, plan: Plan) -> Iterator[Step]:
        """Extend the text, a step at a time, until a stop token or the limit. The prompt must have been read."""
        left = plan.limit
        prefix = plan.sampler.prefix(self.tokens, self.target.vocabulary, self.target.pool.layout.device)
        while left > 0:
            begun = perf_counter()
            sampler = plan.sampler.at_step(len(self.tokens))
            budget = min(plan.budget, left - 1, self.target.widest - 1)
            context = Context(self.tokens, sampler, budget, prefix, self.cache)
            tree = plan.drafter.propose(context) if budget > 0 else DraftTree(self.tokens[-1])
            if not self.target.takes_trees:
                tree = tree.first_chain(budget)
            tree, allowed = (tree, None) if plan.grammar is None else confined(tree, plan.grammar, budget)
            drafted = perf_counter()
            output = self.target.forward(tree, self.cache)
            picks = sampler.pick(output.logits, sampler.rows(tree, len(self.tokens), allowed), prefix)
            path = _until_stop(tree, accept(tree, picks), plan.stop)[:left]
            self.cache.commit(path)
            features = output.features[path] if output.features is not None else None
            outcome = Outcome(
                tree, path, picks, len(self.tokens) - 1, features, output.logits,
                draft_seconds=drafted - begun, verify_seconds=perf_counter() - drafted,
            )  # fmt: skip
            for drafter in self.drafters:
                drafter.observe(outcome)
            self.tokens += outcome.tokens
            if prefix is not None:
                prefix.extend(outcome.tokens)
            if plan.grammar is not None:
                follow(plan.grammar, outcome.tokens)
            left -= len(outcome.tokens)
            yield Step(tree, path, outcome.tokens, drafted - begun, perf_counter() - drafted)
            if outcome.tokens[-1] in plan.stop:
                return

    def listen(self, drafter: Drafter) -> None:
        """From now on this drafter hears of the text, too; what was said before it must do without."""
        self.drafters = (*self.drafters, drafter)

    def close(self) -> None:
        """Give back the rows of the text."""
        self.target.pool.close(self.cache)

    def _recall(self, length: int) -> None:
        self.cache.rollback(max(length, 0))
        for drafter in self.drafters:
            drafter.forget(self.cache.length)

    def _tell_of_prompt(self, chunk: list[int], start: int, features: Tensor | None) -> None:
        remaining = len(self.tokens) - 1 - start
        if remaining > TAIL + len(chunk):
            return
        tree = DraftTree(chunk[0])
        tree.add_chain(chunk[1:], source="text")
        picks = self.tokens[start + 1 : start + 1 + len(chunk)]
        outcome = Outcome(tree, list(range(len(chunk))), picks, start, features)
        for drafter in self.drafters:
            drafter.observe(outcome)


def _until_stop(tree: DraftTree, path: list[int], stop: frozenset[int]) -> list[int]:
    """Cut the path before the first stop token: the target picks that token itself."""
    for count, node in enumerate(path[1:], start=1):
        if tree.tokens[node] in stop:
            return path[:count]
    return path
