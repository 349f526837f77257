"""The drafter: decode the last tokens, continue the sequence of numbers, and encode the continuation.

The draft tokens need not be those that the model would generate: the target verifies them, so a wrong draft costs a
little time and never changes the text.
"""

from __future__ import annotations

from specchat.drafters.registry import DraftingResources
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree
from specchat.text.tokenizer import Tokenizer
from specchat_counting.sequences import continue_sequence

TAIL_TOKENS = 64  # the end of the text that is searched


def build(resources: DraftingResources) -> Drafter | None:
    """The drafter of a conversation; None without a tokenizer of the target."""
    return Counting(resources.tokenizer) if resources.tokenizer is not None else None


class Counting(Drafter):
    """Drafts the next numbers of a sequence."""

    name = "counting"
    is_instant = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain of the next numbers, at most `max_draft_tokens` tokens."""
        tree = DraftTree(context.tokens[-1])
        text = b"".join(map(self.tokenizer.token_bytes, context.tokens[-TAIL_TOKENS:])).decode(errors="replace")
        if continuation := continue_sequence(text):
            tree.add_chain(self.tokenizer.encode(continuation)[: context.max_draft_tokens], source=self.name)
        return tree
