"""The text has been here before: guess what followed then.

Prompt lookup (github.com/apoorvumang/prompt-lookup-decoding) over an incremental index. It knows token ids and
nothing else, and costs microseconds, so it is the first to be asked whenever an answer repeats what it was given.
"""

from __future__ import annotations

from collections import defaultdict

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree

NGRAM_SIZES = (16, 8, 5, 3, 2)  # n-grams that are indexed, longest first
MAX_MATCHES = 8  # earlier places that are looked at
DRAFT_TOKENS_PER_MATCHED = 2  # a longer match is trusted further: guesses for each token of it


class NgramIndex:
    """Where each n-gram of a text was followed by something. Grows and shrinks with the text."""

    def __init__(self, sizes: tuple[int, ...] = NGRAM_SIZES) -> None:
        self.sizes = sizes
        self.tokens: list[int] = []
        self._ends: dict[int, defaultdict[tuple[int, ...], list[int]]] = {size: defaultdict(list) for size in sizes}

    def extend(self, tokens: list[int]) -> None:
        """Index what `tokens` has beyond the text that is known; its beginning is taken as known."""
        start = len(self.tokens)
        self.tokens += tokens[start:]
        for size, ends in self._ends.items():
            for end in range(max(start, size), len(self.tokens)):
                # the n-gram ends before `end`, so that there is a token to guess
                ends[tuple(self.tokens[end - size : end])].append(end)

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        for size, ends in self._ends.items():
            for end in range(len(self.tokens) - 1, max(length, size) - 1, -1):
                ngram = tuple(self.tokens[end - size : end])
                ends[ngram].pop()
                if not ends[ngram]:
                    del ends[ngram]
        del self.tokens[length:]

    def find(self, max_matches: int) -> list[tuple[int, int]]:
        """Places that continue the end of the text: (where, tokens matched), longest match first, then latest."""
        found: dict[int, int] = {}
        for size in self.sizes:
            if size > len(self.tokens):
                continue
            for end in reversed(self._ends[size].get(tuple(self.tokens[-size:]), ())):
                found.setdefault(end, size)
                if len(found) == max_matches:
                    return list(found.items())
        return list(found.items())


class PromptLookup(Drafter):
    """Prompt lookup: the longest earlier match first, other continuations as branches."""

    name = "lookup"
    is_instant = True

    def __init__(self, max_branches: int = 2) -> None:
        self.max_branches = max_branches
        self.index = NgramIndex()

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree of what followed the longest matches, at most `budget` guesses."""
        self.index.extend(context.tokens)
        tree, branches = DraftTree(context.tokens[-1]), 0
        for place, matched in self.index.find(max_matches=MAX_MATCHES):
            room = min(context.max_draft_tokens + 1 - len(tree), DRAFT_TOKENS_PER_MATCHED * matched)
            before = len(tree)
            tree.add_chain(self.index.tokens[place : place + room], source=self.name)
            branches += len(tree) > before
            if branches == self.max_branches or len(tree) > context.max_draft_tokens:
                break
        return tree

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self.index.truncate(length)
