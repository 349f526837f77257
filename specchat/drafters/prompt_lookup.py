"""Prompt lookup: copies what followed the same n-gram earlier in the text.

The method of github.com/apoorvumang/prompt-lookup-decoding over an incremental index. It knows token ids only, and
takes microseconds.
"""

from collections import defaultdict

from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree

NGRAM_SIZES = (16, 8, 5, 3, 2)  # indexed n-grams, longest first
MAX_MATCHES = 8  # earlier positions that are considered
INDEX_BYTES_PER_TOKEN = 1100  # of a text that repeats little
DRAFT_TOKENS_PER_MATCHED = 2  # draft tokens for each matched token: a longer match is more reliable


class NgramIndex:
    """The positions after each n-gram of a text. It grows and shrinks with the text."""

    def __init__(self, sizes: tuple[int, ...] = NGRAM_SIZES) -> None:
        self.sizes = sizes
        self.tokens: list[int] = []
        self._ends: dict[int, defaultdict[tuple[int, ...], list[int]]] = {size: defaultdict(list) for size in sizes}

    def extend(self, tokens: list[int]) -> None:
        """Index the tokens beyond the indexed text; `tokens` must start with that text."""
        start = len(self.tokens)
        self.tokens += tokens[start:]
        for size, ends in self._ends.items():
            for end in range(max(start, size), len(self.tokens)):
                # the n-gram ends before `end`, so that a token follows it
                ends[tuple(self.tokens[end - size : end])].append(end)

    def truncate(self, length: int) -> None:
        for size, ends in self._ends.items():
            for end in range(len(self.tokens) - 1, max(length, size) - 1, -1):
                ngram = tuple(self.tokens[end - size : end])
                ends[ngram].pop()
                if not ends[ngram]:
                    del ends[ngram]
        del self.tokens[length:]

    def find(self, max_matches: int) -> list[tuple[int, int]]:
        """Positions that continue the end of the text, with matched tokens: longest match first, then latest."""
        matches: dict[int, int] = {}
        for size in self.sizes:
            if size > len(self.tokens):
                continue
            for end in reversed(self._ends[size].get(tuple(self.tokens[-size:]), ())):
                matches.setdefault(end, size)
                if len(matches) == max_matches:
                    return list(matches.items())
        return list(matches.items())


class PromptLookup(Drafter):
    """Drafts the continuation of the longest earlier match, and other continuations as branches."""

    name = "lookup"
    is_instant = True

    def __init__(self, max_branches: int = 2) -> None:
        self.max_branches = max_branches
        self.index = NgramIndex()

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree of the tokens that followed the longest matches."""
        self.index.extend(context.tokens)
        tree, branches = DraftTree(context.tokens[-1]), 0
        for position, matched in self.index.find(max_matches=MAX_MATCHES):
            count = min(context.max_draft_tokens + 1 - len(tree), DRAFT_TOKENS_PER_MATCHED * matched)
            old_size = len(tree)
            tree.add_chain(self.index.tokens[position : position + count], source=self.name)
            branches += len(tree) > old_size
            if branches == self.max_branches or len(tree) > context.max_draft_tokens:
                break
        return tree

    def forget(self, length: int) -> None:
        self.index.truncate(length)

    def memory_bytes(self) -> int:
        return INDEX_BYTES_PER_TOKEN * len(self.index.tokens)


def build(_resources: object) -> Drafter:
    return PromptLookup()
