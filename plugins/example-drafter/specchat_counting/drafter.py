"""The drafter: the last tokens as text, the row in it counted on, and that as tokens again.

Whether the guesses fit the tokens of the model is not its business: the engine keeps those that the model would have
written itself, so a wrong guess costs a little time and never changes the text.
"""

from __future__ import annotations

from specchat.assemble import DraftingResources
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.tree import DraftTree
from specchat.models.tokenizer import Tokenizer

from specchat_counting.rows import next_in_row

TAIL = 64  # tokens that are looked at


def build(parts: DraftingResources) -> Drafter | None:
    """The drafter of a conversation; None where the tokens of the target are not known."""
    return Counting(parts.tokenizer) if parts.tokenizer is not None else None


class Counting(Drafter):
    """Guesses the next numbers of a row."""

    name = "counting"
    is_instant = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain of the next numbers, at most `budget` tokens."""
        tree = DraftTree(context.tokens[-1])
        text = b"".join(map(self.tokenizer.token_bytes, context.tokens[-TAIL:])).decode(errors="replace")
        if rest := next_in_row(text):
            tree.add_chain(self.tokenizer.encode(rest)[: context.max_draft_tokens], source=self.name)
        return tree
