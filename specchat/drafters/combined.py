"""Several drafters as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specchat.drafters.realign import Realign
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources


class MergedDrafter(Drafter):
    """The proposals of several drafters in one tree, where equal tokens share a node. Order them by preference.

    Each drafter proposes a tree of the whole budget. Half of the rows go to the first drafter, half of the rest to the
    second, and so on; unused rows go to the others in the same order.
    """

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters
        self.name = " and ".join(drafter.name for drafter in drafters)
        self.hidden_state_layers = tuple(
            dict.fromkeys(layer for drafter in drafters for layer in drafter.hidden_state_layers)
        )
        self.is_instant = all(drafter.is_instant for drafter in drafters)
        self._merged_tree: DraftTree | None = None
        self._mappings: list[_TreeMapping] = []

    def propose(self, context: DraftContext) -> DraftTree:
        self._merged_tree = merged = DraftTree(context.tokens[-1])
        self._mappings = [_TreeMapping(drafter.propose(context)) for drafter in self.drafters]
        for mapping in self._mappings:
            free_rows = context.max_draft_tokens + 1 - len(merged)
            mapping.merge_into(merged, len(merged) + self._row_share(free_rows))
        for mapping in self._mappings:
            mapping.merge_into(merged, context.max_draft_tokens + 1)
        return merged

    def _row_share(self, free_rows: int) -> int:
        return (free_rows + 1) // 2

    def observe(self, outcome: Outcome) -> None:
        """Pass the outcome to every drafter, in the node numbers of its own tree if this is the merged tree."""
        if outcome.tree is not self._merged_tree:
            for drafter in self.drafters:
                drafter.observe(outcome)
            return
        for drafter, mapping in zip(self.drafters, self._mappings, strict=True):
            drafter.observe(mapping.own_outcome(outcome))
        self._merged_tree, self._mappings = None, []

    def start_answer(self, task: AnswerTask) -> None:
        for drafter in self.drafters:
            drafter.start_answer(task)

    def forget(self, length: int) -> None:
        for drafter in self.drafters:
            drafter.forget(length)

    def close(self) -> None:
        for drafter in self.drafters:
            drafter.close()

    def memory_bytes(self) -> int:
        return sum(drafter.memory_bytes() for drafter in self.drafters)


class SuffixAndRealign(MergedDrafter):
    """Suffix decoding, merged with `Realign` while a text is being rewritten.

    It has the name of the suffix drafter: without a text to rewrite, it behaves exactly like it.
    """

    def __init__(self, suffix_drafter: Drafter) -> None:
        super().__init__(suffix_drafter)
        self.name, self.suffix_drafter = suffix_drafter.name, suffix_drafter
        self.realign: Realign | None = None

    def start_answer(self, task: AnswerTask) -> None:
        """Follow the text that the answer rewrites, if it rewrites one."""
        self.realign = Realign(list(task.original_tokens), task.answer_start) if task.original_tokens else None
        self.drafters = (self.realign, self.suffix_drafter) if self.realign else (self.suffix_drafter,)

    def propose(self, context: DraftContext) -> DraftTree:
        """Prefer the rewritten original; while the answer has lost its place in it, prefer the suffix drafter."""
        if self.realign is not None:
            pair = (self.realign, self.suffix_drafter)
            self.drafters = pair[::-1] if self.realign.is_lost else pair
        return super().propose(context)

    def _row_share(self, free_rows: int) -> int:
        return free_rows if self.drafters[0] is self.suffix_drafter else super()._row_share(free_rows)


class _TreeMapping:
    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree
        self.merged_nodes = [ROOT]  # own node -> merged node

    def merge_into(self, merged: DraftTree, max_nodes: int) -> None:
        """Add own nodes in their order, until the merged tree has `max_nodes` nodes."""
        for node in range(len(self.merged_nodes), len(self.tree)):
            token, parent = self.tree.tokens[node], self.merged_nodes[self.tree.parents[node]]
            if len(merged) >= max_nodes and merged.child(parent, token) is None:
                return
            self.merged_nodes.append(merged.add(token, parent, self.tree.sources[node]))

    def own_outcome(self, outcome: Outcome) -> Outcome:
        """The outcome in own node numbers. Accepted nodes of other drafters follow behind the own nodes.

        So the path is complete, and own nodes keep the numbers that their drafter gave them.
        """
        tree, rows = DraftTree(self.tree.tokens[ROOT]), list(self.merged_nodes)
        for node in range(1, len(self.merged_nodes)):
            tree.add(self.tree.tokens[node], self.tree.parents[node], self.tree.sources[node])
        path = [ROOT]
        for accepted in outcome.path[1:]:
            path.append(tree.add(outcome.tree.tokens[accepted], path[-1], outcome.tree.sources[accepted]))
            if len(tree) > len(rows):
                rows.append(accepted)
        logits = outcome.logits[rows] if outcome.logits is not None else None
        sampled_tokens = [outcome.sampled_tokens[row] for row in rows]
        return replace(outcome, tree=tree, path=path, sampled_tokens=sampled_tokens, logits=logits)


def build_suffix(resources: DraftingResources) -> Drafter:
    return SuffixAndRealign(SuffixDecoding(resources.past_texts))
