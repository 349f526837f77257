"""Medusa (arXiv 2401.10774): several heads on the target's last hidden state, each for one position ahead.

Only exact verification is supported: the paper's "typical" acceptance changes the text. The heads are independent of
each other, so the tree combines their best candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor

from specchat.drafters.candidate_tree import CandidateTree, PathLogits
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import storage_bytes
from specchat.engine.model import FINAL_NORM, Model, select_layers

if TYPE_CHECKING:
    from specchat.drafters.heads.networks import MedusaHead
    from specchat.drafters.registry import DraftingResources


class Medusa(CandidateTree):
    """Stores one hidden state of the text."""

    name = "medusa"
    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, head: MedusaHead, target: Model) -> None:
        super().__init__(head.tokens_ahead)
        self.head, self.target = head, target
        self._hidden_state: Tensor | None = None  # of the last token in the target's cache [1, D]
        self._hidden_state_end = 0  # tokens up to that one, inclusive

    def path_logits(self, context: DraftContext) -> PathLogits | None:
        if self._hidden_state is None or self._hidden_state_end != len(context.tokens) - 1:
            return None
        logits = self.head.logits(self._hidden_state)
        return lambda ahead, _paths: logits[ahead]

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        if outcome.hidden_states is not None and FINAL_NORM in self.target.hidden_state_layers:
            self._hidden_state = select_layers(
                outcome.hidden_states[-1:], self.target.hidden_state_layers, self.hidden_state_layers
            )
            self._hidden_state_end = outcome.root_position + len(outcome.path)

    def memory_bytes(self) -> int:
        return storage_bytes([self._hidden_state] if self._hidden_state is not None else [])

    def forget(self, length: int) -> None:
        super().forget(length)
        if length < self._hidden_state_end:
            self._hidden_state, self._hidden_state_end = None, 0


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get("medusa")
    return Medusa(cast("MedusaHead", head), resources.target) if head is not None else None
