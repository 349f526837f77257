"""Several drafters as one. The only file here that knows that there are others."""

from __future__ import annotations

from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.tree import DraftTree


class FirstOf(Drafter):
    """The first drafter that has something to say. Order them by price: lookup before a model."""

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.name = ", else ".join(drafter.name for drafter in drafters)
        self.taps = tuple(dict.fromkeys(tap for drafter in drafters for tap in drafter.taps))

    def propose(self, context: Context) -> DraftTree:
        """What the first of them guesses that guesses anything."""
        tree = DraftTree(context.tokens[-1])
        for drafter in self.drafters:
            tree = drafter.propose(context)
            if len(tree) > 1:
                break
        return tree

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears."""
        for drafter in self.drafters:
            drafter.observe(outcome)

    def forget(self, length: int) -> None:
        """Everybody forgets."""
        for drafter in self.drafters:
            drafter.forget(length)
