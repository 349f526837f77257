"""Chains of drafts for networks that decode over transformers' own cache.

They have recurrent layers, which fold the whole text into one state (LFM2, Granite hybrid, Qwen3.5 on GPUs), or
attention that does not follow our masks (ALiBi).

A recurrent state has no rollback. Where the recurrences of a network are known (`row_steps`), a pass leaves its states
as they were, and the committed rows are applied at the start of the next pass. For other networks this adapter saves
the state before a pass, and replays the tokens committed since then at the start of the next pass, where they cost a
few more rows but no pass of their own. Trees would need a state for every branch.

Going further back needs a checkpoint: a copy of the state, at least every `CHECKPOINT_TOKENS` tokens and at the ends of
prompts and answers. What is behind the checkpoint is read again.

The network's own cache has the keys, values and states. Our `KVCache` only counts rows: its `rollback_floor` is the
length of the current state, and a rollback below it goes to one of its `checkpoints`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.cache_sizes import CHECKPOINT_TOKENS, MAX_CHECKPOINT_BYTES
from specchat.engine.checkpoints import MIN_TURN_TOKENS, Checkpoints, keep_within
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.own_cache import OwnCacheModel, cache_bytes
from specchat_hybrids.row_steps import RecordedRows, SteppedNetwork
from specchat_hybrids.snapshots import Snapshot

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_REPLAYED_TOKENS = 16  # more tokens are replayed in a pass of their own
MAX_STEPPED_PROMPT = 64  # more tokens of a prompt are computed in chunks: matmuls are faster than steps
CPU = torch.device("cpu")


@dataclass
class _State:
    cache: Any  # the network's own, after `length` tokens and the tokens of the last pass
    length: int = 0
    saved: Snapshot | None = None  # after `length`
    last_tokens: list[int] = field(default_factory=list[int])  # of the last pass
    checkpoints: Checkpoints[Snapshot] = field(default_factory=Checkpoints[Snapshot])
    is_prefilled: bool = False  # the last pass was a part of a prompt
    recorded: RecordedRows | None = None  # of the last pass, if it was stepped


class OwnCacheChains(OwnCacheModel):
    """A network of transformers over its own cache, which verifies chains of drafts.

    Without `steps_rows`, transformers computes the recurrences of several rows.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        context_window: int | None = None,
        limits: BatchLimits | None = None,
        steps_rows: bool = True,
    ) -> None:
        super().__init__(network, context_window, limits)
        self.max_rows = self.limits.max_rows
        self._state_by_cache: WeakKeyDictionary[KVCache, _State] = WeakKeyDictionary()
        self._cache_class = _own_cache_class(network, self._cache_name)
        is_on_cpu = network.device == CPU  # on GPUs, rows of torch's small operations were never measured
        self._stepped = SteppedNetwork(network) if steps_rows and is_on_cpu else None
        if self._stepped is not None and not self._records_all_rows():
            self._stepped = None

    @torch.inference_mode()
    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        assert tree.is_chain, "a network over its own cache supports chains only"
        state, replayed = self._restore_committed_state(cache)
        if state.is_prefilled:
            self._add_checkpoint(state, MIN_TURN_TOKENS)
            state.is_prefilled = False
        if len(replayed) > MAX_REPLAYED_TOKENS:
            state, replayed = self._replay(cache, state, replayed), []
        return self._forward_tokens(cache, state, replayed, tree.tokens, rows=len(tree))

    @torch.inference_mode()
    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """In parts that end where a checkpoint is due."""
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        state = self._replay(cache, *self._restore_committed_state(cache))
        if not state.is_prefilled:
            self._add_checkpoint(state, MIN_TURN_TOKENS)
        outputs: list[ModelOutput] = []
        while True:
            part = tokens[: _room(state) or CHECKPOINT_TOKENS]
            outputs.append(self._forward_tokens(cache, state, [], part, rows=1))
            cache.commit(list(range(len(part))))
            tokens = tokens[len(part) :]
            if not tokens:
                break
            state, _none = self._restore_committed_state(cache)
        state.is_prefilled = True
        cache.network_bytes = cache_bytes(state.cache) + state.checkpoints.bytes
        return ModelOutput(outputs[-1].logits, _concatenated_hidden_states(outputs))

    def _new_cache(self) -> Any:
        """An empty cache; where rows are stepped one that records them."""
        cache = super()._new_cache() if self._cache_class is None else self._cache_class()
        if self._stepped is not None:
            cache.activate_past_recording()
        return cache

    @torch.inference_mode()
    def _records_all_rows(self) -> bool:
        """Whether passes over two rows and over one leave every state as it was, with their rows on record."""
        cache, tokens = self.pool.open(), DraftTree(0)
        tokens.add_chain([0])
        try:
            self.prefill([0, 0, 0], cache)
            for tree in (tokens, DraftTree(0)):
                self.forward(tree, cache)
                state = self._state_by_cache[cache]
                if state.recorded is None or not state.recorded.covers(state.cache):
                    return False
                cache.commit([0])
            self._restore_committed_state(cache)
        except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return False  # a family of its own
        finally:
            self.pool.close(cache)
            self._state_by_cache.pop(cache, None)
        return True

    def _forward_tokens(
        self, cache: KVCache, state: _State, replayed: list[int], tokens: list[int], rows: int
    ) -> ModelOutput:
        if len(replayed) + len(tokens) > _room(state):
            self._add_checkpoint(state)
        output = self._run_pass(state, replayed + tokens, rows)
        cache.rollback_floor, cache.checkpoints = state.length, state.checkpoints.lengths
        hidden_states = output.hidden_states[len(replayed) :] if output.hidden_states is not None else None
        return ModelOutput(output.logits, hidden_states)

    def _replay(self, cache: KVCache, state: _State, replayed: list[int]) -> _State:
        """The state of all committed tokens, after a pass of its own for those that would be replayed."""
        if replayed:
            self._run_pass(state, replayed, rows=1)
            state, _none = self._restore_committed_state(cache)
        return state

    def _restore_committed_state(self, cache: KVCache) -> tuple[_State, list[int]]:
        """A state of committed tokens only, and the committed tokens that the next pass must replay."""
        state = self._state_by_cache.pop(cache, None) or _State(self._new_cache())
        self._state_by_cache[cache] = state  # the text that was used last is the last one
        if cache.length < state.length:
            self._go_back(state, cache.length)
        committed = cache.length - state.length
        if state.recorded is None and committed < len(state.last_tokens):
            replayed, state.last_tokens = state.last_tokens[:committed], []
            self._restore(state, state.saved)
            return state, replayed
        if state.recorded is not None:
            state.recorded.commit(state.cache, committed)
        elif self._stepped is not None and state.last_tokens:
            state.cache.crop(0)  # a prompt
        state.length, state.last_tokens, state.recorded = cache.length, [], None
        if self._stepped is None:
            state.saved = Snapshot.take(state.length, state.cache)
        return state, []

    def _go_back(self, state: _State, length: int) -> None:
        self._restore(state, state.checkpoints.go_back(length))
        state.length, state.last_tokens, state.recorded = length, [], None

    def _restore(self, state: _State, snapshot: Snapshot | None) -> None:
        if snapshot is None or snapshot.length == 0:
            state.cache = self._new_cache()
        else:
            state.cache = snapshot.restore(self.network.device)

    def _add_checkpoint(self, state: _State, min_tokens: int = 1) -> None:
        """Keep the current state, if it is so many tokens behind the last checkpoint."""
        is_new = state.length >= state.checkpoints.last_length + min_tokens
        if not is_new:
            return
        if state.saved is None:
            saved = Snapshot.take(state.length, state.cache, CPU)
        else:
            saved = state.saved.on_device(CPU)
        if saved.bytes > MAX_CHECKPOINT_BYTES:
            return
        state.checkpoints.add(saved)
        keep_within(MAX_CHECKPOINT_BYTES, [each.checkpoints for each in self._state_by_cache.values()])
        for cache, each in self._state_by_cache.items():
            cache.checkpoints = each.checkpoints.lengths
            cache.network_bytes = cache_bytes(each.cache) + each.checkpoints.bytes

    def checkpoint_bytes(self) -> int:
        """Of all texts."""
        return sum(state.checkpoints.bytes for state in self._state_by_cache.values())

    def _run_pass(self, state: _State, tokens: list[int], rows: int) -> ModelOutput:
        first = state.length + len(state.last_tokens)
        if self._stepped is not None and first > 0 and len(tokens) <= max(rows, MAX_STEPPED_PROMPT):
            with self._stepped.recording(len(tokens)) as state.recorded:
                output, state.cache = self._run_network(state.cache, first, tokens, rows)
        else:
            output, state.cache = self._run_network(state.cache, first, tokens, rows)
        state.last_tokens = state.last_tokens + tokens
        return output


@torch.inference_mode()
def _own_cache_class(network: PreTrainedModel, cache_name: str) -> type[Any] | None:
    """The class of the cache that a family makes for itself, and takes no other (MiniMax); None for the usual one."""
    from transformers import DynamicCache

    out: Any = network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.device), use_cache=True)
    made = getattr(out, cache_name, None)
    return type(made) if isinstance(made, DynamicCache) and type(made) is not DynamicCache else None


def _room(state: _State) -> int:
    """How many tokens a pass may add before the last checkpoint is too far behind; 0 where one is due."""
    return max(CHECKPOINT_TOKENS + state.checkpoints.last_length - state.length, 0)


def _concatenated_hidden_states(outputs: list[ModelOutput]) -> Tensor | None:
    hidden_states = [each.hidden_states for each in outputs if each.hidden_states is not None]
    return torch.cat(hidden_states) if hidden_states else None
