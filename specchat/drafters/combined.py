"""Several drafters as one. The only file here that knows that there are others."""

from __future__ import annotations

from dataclasses import replace

from specchat.drafters.realign import Realign
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree


class _Several(Drafter):
    """Drafters that listen and forget as one."""

    joint = ", "

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.name = self.joint.join(drafter.name for drafter in drafters)
        self.taps = tuple(dict.fromkeys(tap for drafter in drafters for tap in drafter.taps))
        self.is_instant = all(drafter.is_instant for drafter in drafters)

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears."""
        for drafter in self.drafters:
            drafter.observe(outcome)

    def forget(self, length: int) -> None:
        """Everybody forgets."""
        for drafter in self.drafters:
            drafter.forget(length)


class FirstOf(_Several):
    """The first drafter that has something to say. Order them by price: lookup before a model."""

    joint = ", else "

    def propose(self, context: Context) -> DraftTree:
        """What the first of them guesses that guesses anything."""
        tree = DraftTree(context.tokens[-1])
        for drafter in self.drafters:
            tree = drafter.propose(context)
            if len(tree) > 1:
                break
        return tree


class Together(_Several):
    """The guesses of several drafters in one tree, where equal guesses are one node. Order them by preference.

    Each is asked for a tree of the whole budget. Half of the rows go to the first, half of the rest to the second,
    and so on; what somebody leaves over goes to the others in the same order.
    """

    joint = " and "

    def __init__(self, *drafters: Drafter) -> None:
        super().__init__(*drafters)
        self._merged: DraftTree | None = None
        self._shares: list[_Share] = []

    def propose(self, context: Context) -> DraftTree:
        """One tree of what everybody guesses, at most `budget` guesses."""
        merged = DraftTree(context.tokens[-1])
        self._merged, self._shares = merged, [_Share(drafter.propose(context)) for drafter in self.drafters]
        for share in self._shares:
            left = context.budget + 1 - len(merged)
            share.merge_into(merged, len(merged) + self._portion(left))
        for share in self._shares:
            share.merge_into(merged, context.budget + 1)
        return merged

    def _portion(self, left: int) -> int:
        """Rows of those that are left that go to the next of them at once."""
        return (left + 1) // 2

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears, in the node numbers of its own tree if this is the tree that was merged."""
        if outcome.tree is not self._merged:
            super().observe(outcome)
            return
        for drafter, share in zip(self.drafters, self._shares, strict=True):
            drafter.observe(share.view(outcome))
        self._merged, self._shares = None, []


class Copying(Together):
    """What repeats itself is copied; and of a text that is being rewritten, the text finds its place again as well.

    It goes by the name of who looks for repeats, whose place it takes: with nothing to rewrite it is no other.
    """

    def __init__(self, repeats: Drafter) -> None:
        super().__init__(repeats)
        self.name, self.repeats = repeats.name, repeats
        self.rewritten: Realign | None = None

    def rewrite(self, original: list[int], begins: int) -> None:
        """From token `begins` on, the text is a new version of these tokens; of none, it is just a text."""
        self.rewritten = Realign(original, begins) if original else None
        self.drafters = (self.rewritten, self.repeats) if self.rewritten else (self.repeats,)

    def propose(self, context: Context) -> DraftTree:
        """What is rewritten comes first; when the answer has left it for long, it gets what the repeats leave over."""
        if self.rewritten is not None:
            pair = (self.rewritten, self.repeats)
            self.drafters = pair[::-1] if self.rewritten.is_lost else pair
        return super().propose(context)

    def _portion(self, left: int) -> int:
        return left if self.drafters[0] is self.repeats else super()._portion(left)


class _Share:
    """The tree of one drafter, and where its first nodes are in the merged one."""

    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree
        self.nodes = [ROOT]  # own node -> merged node

    def merge_into(self, merged: DraftTree, most: int) -> None:
        """Add own nodes in their order, until the merged tree has `most` nodes."""
        for node in range(len(self.nodes), len(self.tree)):
            token, parent = self.tree.tokens[node], self.nodes[self.tree.parents[node]]
            if len(merged) >= most and merged.child(parent, token) is None:
                return
            self.nodes.append(merged.add(token, parent, self.tree.sources[node]))

    def view(self, outcome: Outcome) -> Outcome:
        """An outcome in own node numbers. Kept nodes that only others guessed follow behind the own ones.

        So the path is whole, and own nodes keep the numbers that their drafter gave them.
        """
        tree, rows = DraftTree(self.tree.tokens[ROOT]), list(self.nodes)
        for node in range(1, len(self.nodes)):
            tree.add(self.tree.tokens[node], self.tree.parents[node], self.tree.sources[node])
        path = [ROOT]
        for kept in outcome.path[1:]:
            path.append(tree.add(outcome.tree.tokens[kept], path[-1], outcome.tree.sources[kept]))
            if len(tree) > len(rows):
                rows.append(kept)
        logits = outcome.logits[rows] if outcome.logits is not None else None
        picks = [outcome.picks[row] for row in rows]
        return replace(outcome, tree=tree, path=path, picks=picks, logits=logits)
