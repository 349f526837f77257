"""Gemma 4's assistants: a small model that attends to the keys and values of the target drafts a tree.

Each node reads the embedding of its token and the hidden state of its parent, the root that of the target, so the
candidates of a position differ from path to path, and the paths of a depth are one batch. The target's cache is read
and never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specchat.drafters.candidate_tree import CandidateTree, DraftPath, PathLogits
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer

if TYPE_CHECKING:
    from specchat.drafters.heads.assistant_head import AssistantHead
    from specchat.drafters.registry import DraftingResources

TOKENS_AHEAD = 5


class Assistant(CandidateTree):
    """It needs the target's cache of the whole text except the last token, and the last hidden state of it."""

    name = "assistant"
    depends_on_path = True

    def __init__(self, head: AssistantHead) -> None:
        super().__init__(TOKENS_AHEAD)
        self.head, self.hidden_state_layers = head, head.hidden_state_layers
        self.hidden_states = HiddenStateBuffer(max_tokens=1)

    def path_logits(self, context: DraftContext) -> PathLogits | None:
        cache, stored_tokens = context.cache, len(context.tokens) - 1
        if cache is None or cache.slot is None or cache.length != stored_tokens:
            return None
        if self.hidden_states.end != stored_tokens or self.hidden_states.start == stored_tokens:
            return None
        # the states that the tokens behind a path are read with; those of the root are the target's
        states: dict[DraftPath | None, Tensor] = {None: self.hidden_states.slice_from(stored_tokens - 1)}

        def logits(_ahead: int, paths: Sequence[DraftPath]) -> Tensor:
            parents = torch.cat([states[path[:-1] if path else None] for path in paths])
            ends = [path[-1] if path else context.tokens[-1] for path in paths]
            output = self.head.forward(parents, copy_to_device(ends, parents.device), cache)
            states.update(zip(paths, output.hidden_states.split(1), strict=True))
            return output.logits

        return logits

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        self.hidden_states.observe(outcome, self.head.target.hidden_state_layers, self.hidden_state_layers)

    def memory_bytes(self) -> int:
        return self.hidden_states.bytes

    def forget(self, length: int) -> None:
        super().forget(length)
        self.hidden_states.truncate(length)


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get("assistant")
    return Assistant(cast("AssistantHead", head)) if head is not None else None
