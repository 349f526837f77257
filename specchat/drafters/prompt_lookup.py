"""Prompt lookup: copies what followed the longest earlier occurrence of the end of the text.

The method of github.com/apoorvumang/prompt-lookup-decoding, over the index of suffix decoding. It knows token ids only,
and takes microseconds.
"""

from specchat.drafters.suffix_contexts import TextIndex
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree

MIN_MATCHED_TOKENS = 2
MAX_MATCHES = 8  # earlier positions that are considered
DRAFT_TOKENS_PER_MATCHED = 2  # draft tokens for each matched token: a longer match is more reliable


class PromptLookup(Drafter):
    """Drafts the continuation of the longest earlier match, and other continuations as branches."""

    name = "lookup"
    is_instant = True

    def __init__(self, max_branches: int = 2) -> None:
        self.max_branches = max_branches
        self.index = TextIndex()

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree of the tokens that followed the longest matches."""
        self.index.extend(context.tokens)
        tree, branches = DraftTree(context.tokens[-1]), 0
        for match in self.index.find(MAX_MATCHES):
            free, position = context.max_draft_tokens + 1 - len(tree), match.next_index
            if match.matched_tokens < MIN_MATCHED_TOKENS or branches == self.max_branches or not free:
                break
            old_size, count = len(tree), min(free, DRAFT_TOKENS_PER_MATCHED * match.matched_tokens)
            tree.add_chain(context.tokens[position : position + count], source=self.name)
            branches += len(tree) > old_size
        return tree

    def forget(self, length: int) -> None:
        self.index.truncate(length)

    def memory_bytes(self) -> int:
        return self.index.bytes


def build(_resources: object) -> Drafter:
    return PromptLookup()
