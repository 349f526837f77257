"""Hydra (arXiv 2402.05109): Medusa's tree, where each head also reads the draft tokens before its own.

So the candidates of a position differ from path to path, and the paths of a depth are one batch of the head. Hydra++
reads the hidden states of the whole text with a decoder layer of its own; its KV cache holds only committed tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from torch import Tensor

from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import Model
from specchat.errors import CacheError
from specchat_heads.candidate_tree import CandidateTree, DraftPath, PathLogits

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources
    from specchat_heads.hydra_head import HydraHead


class Hydra(CandidateTree):
    """It belongs to one text; the head's weights are shared."""

    name = "hydra"
    depends_on_path = True

    def __init__(self, head: HydraHead, target: Model) -> None:
        super().__init__(head.tokens_ahead)
        self.head, self.target, self.hidden_state_layers = head, target, head.hidden_state_layers
        self.cache = head.pool.open()
        self.hidden_states = HiddenStateBuffer()
        self._first_position = 0  # position of row 0 of the cache

    def path_logits(self, context: DraftContext) -> PathLogits | None:
        stored_tokens, window = len(context.tokens) - 1, self.head.context_window
        if self.hidden_states.end != stored_tokens or self.hidden_states.start == stored_tokens:
            return None
        try:
            with self.head.pool.acquire_slot(self.cache, min(stored_tokens, 2 * window) + SCRATCH_ROWS):
                state = self._prefill(stored_tokens)
        except CacheError:  # no memory for the head's KV cache: continue without draft tokens
            return None

        def logits(_ahead: int, paths: Sequence[DraftPath]) -> Tensor:
            tokens = copy_to_device([token for path in paths for token in (context.tokens[-1], *path)], state.device)
            return self.head.logits(state.expand(len(paths), -1), tokens.view(len(paths), -1))

        return logits

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        self.hidden_states.observe(outcome, self.target.hidden_state_layers, self.hidden_state_layers)

    def memory_bytes(self) -> int:
        return self.hidden_states.bytes

    def forget(self, length: int) -> None:
        super().forget(length)
        self.hidden_states.truncate(length)
        self.cache.rollback(max(length - self._first_position, 0))

    def _prefill(self, stored_tokens: int) -> Tensor:
        """Read the new hidden states of the text; the state that the heads read after its last token. [1, D]"""
        self.cache.rollback(max(stored_tokens - 1 - self._first_position, 0))  # read at least the last token
        self._first_position = self.hidden_states.trim_cache(
            self.cache, self._first_position, stored_tokens, self.head.context_window
        )
        chunks = self.hidden_states.chunks_from(self._first_position + self.cache.length)
        return [self.head.prefill(chunk, self.cache, self._first_position)[-1:] for chunk in chunks][-1]


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get("hydra")
    return Hydra(cast("HydraHead", head), resources.target) if head is not None else None
