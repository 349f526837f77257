"""Several drafters as one. The only file here that knows that there are others."""

from __future__ import annotations

from dataclasses import replace

from specchat.drafters.realign import Realign
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree


class _CombinedDrafter(Drafter):
    """Drafters that listen and forget as one."""

    name_separator = ", "

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.name = self.name_separator.join(drafter.name for drafter in drafters)
        self.hidden_state_layers = tuple(
            dict.fromkeys(tap for drafter in drafters for tap in drafter.hidden_state_layers)
        )
        self.is_instant = all(drafter.is_instant for drafter in drafters)

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears."""
        for drafter in self.drafters:
            drafter.observe(outcome)

    def forget(self, length: int) -> None:
        """Everybody forgets."""
        for drafter in self.drafters:
            drafter.forget(length)


class FirstOf(_CombinedDrafter):
    """The first drafter that has something to say. Order them by price: lookup before a model."""

    name_separator = ", else "

    def propose(self, context: DraftContext) -> DraftTree:
        """What the first of them guesses that guesses anything."""
        tree = DraftTree(context.tokens[-1])
        for drafter in self.drafters:
            tree = drafter.propose(context)
            if len(tree) > 1:
                break
        return tree


class MergedDrafter(_CombinedDrafter):
    """The guesses of several drafters in one tree, where equal guesses are one node. Order them by preference.

    Each is asked for a tree of the whole budget. Half of the rows go to the first, half of the rest to the second,
    and so on; what somebody leaves over goes to the others in the same order.
    """

    name_separator = " and "

    def __init__(self, *drafters: Drafter) -> None:
        super().__init__(*drafters)
        self._merged_tree: DraftTree | None = None
        self._mappings: list[_TreeMapping] = []

    def propose(self, context: DraftContext) -> DraftTree:
        """One tree of what everybody guesses, at most `budget` guesses."""
        merged = DraftTree(context.tokens[-1])
        self._merged_tree, self._mappings = (
            merged,
            [_TreeMapping(drafter.propose(context)) for drafter in self.drafters],
        )
        for share in self._mappings:
            left = context.max_draft_tokens + 1 - len(merged)
            share.merge_into(merged, len(merged) + self._row_share(left))
        for share in self._mappings:
            share.merge_into(merged, context.max_draft_tokens + 1)
        return merged

    def _row_share(self, free_rows: int) -> int:
        """Rows of those that are left that go to the next of them at once."""
        return (free_rows + 1) // 2

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears, in the node numbers of its own tree if this is the tree that was merged."""
        if outcome.tree is not self._merged_tree:
            super().observe(outcome)
            return
        for drafter, share in zip(self.drafters, self._mappings, strict=True):
            drafter.observe(share.own_outcome(outcome))
        self._merged_tree, self._mappings = None, []


class SuffixAndRealign(MergedDrafter):
    """What repeats itself is copied; and of a text that is being rewritten, the text finds its place again as well.

    It goes by the name of who looks for repeats, whose place it takes: with nothing to rewrite it is no other.
    """

    def __init__(self, suffix_drafter: Drafter) -> None:
        super().__init__(suffix_drafter)
        self.name, self.suffix_drafter = suffix_drafter.name, suffix_drafter
        self.realign: Realign | None = None

    def set_original(self, original_tokens: list[int], answer_start: int) -> None:
        """From token `begins` on, the text is a new version of these tokens; of none, it is just a text."""
        self.realign = Realign(original_tokens, answer_start) if original_tokens else None
        self.drafters = (self.realign, self.suffix_drafter) if self.realign else (self.suffix_drafter,)

    def propose(self, context: DraftContext) -> DraftTree:
        """What is rewritten comes first; when the answer has left it for long, it gets what the repeats leave over."""
        if self.realign is not None:
            pair = (self.realign, self.suffix_drafter)
            self.drafters = pair[::-1] if self.realign.is_lost else pair
        return super().propose(context)

    def _row_share(self, free_rows: int) -> int:
        return free_rows if self.drafters[0] is self.suffix_drafter else super()._row_share(free_rows)


class _TreeMapping:
    """The tree of one drafter, and where its first nodes are in the merged one."""

    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree
        self.merged_nodes = [ROOT]  # own node -> merged node

    def merge_into(self, merged: DraftTree, max_nodes: int) -> None:
        """Add own nodes in their order, until the merged tree has `most` nodes."""
        for node in range(len(self.merged_nodes), len(self.tree)):
            token, parent = self.tree.tokens[node], self.merged_nodes[self.tree.parents[node]]
            if len(merged) >= max_nodes and merged.child(parent, token) is None:
                return
            self.merged_nodes.append(merged.add(token, parent, self.tree.sources[node]))

    def own_outcome(self, outcome: Outcome) -> Outcome:
        """An outcome in own node numbers. Kept nodes that only others guessed follow behind the own ones.

        So the path is whole, and own nodes keep the numbers that their drafter gave them.
        """
        tree, rows = DraftTree(self.tree.tokens[ROOT]), list(self.merged_nodes)
        for node in range(1, len(self.merged_nodes)):
            tree.add(self.tree.tokens[node], self.tree.parents[node], self.tree.sources[node])
        path = [ROOT]
        for kept in outcome.path[1:]:
            path.append(tree.add(outcome.tree.tokens[kept], path[-1], outcome.tree.sources[kept]))
            if len(tree) > len(rows):
                rows.append(kept)
        logits = outcome.logits[rows] if outcome.logits is not None else None
        picks = [outcome.sampled_tokens[row] for row in rows]
        return replace(outcome, tree=tree, path=path, picks=picks, logits=logits)
