"""Networks with recurrent layers, which fold the whole text into one state: Qwen3-Next, Qwen3.5, LFM2.

Rollback of such a state is impossible: a pass over draft tokens that are rejected later has changed it. So this adapter
saves the state before a pass, and replays the tokens committed since then at the start of the next pass, where they
cost a few more rows but no pass of their own. Trees would need a state for every branch, so only chains are supported.

The network's own cache has the keys, values and states. Our `KVCache` only counts rows, and its `rollback_floor` is the
length of the saved state. A rollback below it clears the cache, and the text is prefilled again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers_model import TransformersModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_REPLAYED_TOKENS = 16  # more tokens are replayed in a pass of their own


@dataclass
class _RecurrentState:
    cache: Any  # transformers' cache, after `length` tokens and the tokens of the last pass
    length: int = 0
    saved_states: list[dict[int, Tensor]] = field(default_factory=list[dict[int, Tensor]])  # by layer, after `length`
    last_tokens: list[int] = field(default_factory=list[int])  # of the last pass


class RecurrentModel(TransformersModel):
    """A transformers model with recurrent layers, over transformers' cache."""

    def __init__(
        self, network: PreTrainedModel, context_window: int | None = None, limits: BatchLimits | None = None
    ) -> None:
        super().__init__(network, context_window, limits)
        self.supports_trees = False
        self._state_by_cache: WeakKeyDictionary[KVCache, _RecurrentState] = WeakKeyDictionary()

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        assert tree.is_chain, "a network with recurrent layers supports chains only"
        return self._forward_tokens(tree.tokens, cache, rows=len(tree))

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        output = self._forward_tokens(tokens, cache, rows=1)
        cache.commit(list(range(len(tokens))))
        return output

    def _kv_layout(self) -> KVLayout:
        return KVLayout((), self.network.dtype, self.network.device)

    @torch.inference_mode()
    def _forward_tokens(self, tokens: list[int], cache: KVCache, rows: int) -> ModelOutput:
        state, replayed = self._restore_committed_state(cache)
        if len(replayed) > MAX_REPLAYED_TOKENS:
            self._run_network(state, replayed, rows=1)
            state, replayed = self._restore_committed_state(cache)
        output = self._run_network(state, replayed + tokens, rows)
        cache.rollback_floor = state.length
        hidden_states = output.hidden_states[len(replayed) :] if output.hidden_states is not None else None
        return ModelOutput(output.logits, hidden_states)

    def _restore_committed_state(self, cache: KVCache) -> tuple[_RecurrentState, list[int]]:
        """A state of committed tokens only, and the committed tokens that the next pass must replay."""
        state = self._state_by_cache.get(cache)
        if state is None or cache.length < state.length:
            assert cache.length == 0, "rollback below the saved state"
            state = self._state_by_cache[cache] = _RecurrentState(_empty_cache(self.network))
        committed = cache.length - state.length
        if committed == len(state.last_tokens):
            state.length, state.last_tokens, state.saved_states = cache.length, [], _copy_states(state.cache)
            return state, []
        if state.length == 0:
            state.cache = _empty_cache(self.network)
            return state, state.last_tokens[:committed]
        replayed, state.last_tokens = state.last_tokens[:committed], []
        _restore_states(state.cache, state.saved_states, state.length)
        return state, replayed

    def _run_network(self, state: _RecurrentState, tokens: list[int], rows: int) -> ModelOutput:
        ids = torch.tensor([tokens], device=self.network.device)
        out = self.network(input_ids=ids, past_key_values=state.cache, use_cache=True, logits_to_keep=rows)
        state.last_tokens = tokens
        return ModelOutput(out.logits[0], self._hidden_states())


def has_recurrent_layers(network: PreTrainedModel) -> bool:
    """Whether a network has layers whose state has no rollback."""
    return any(hasattr(layer, "recurrent_states") for layer in _empty_cache(network).layers)


def _empty_cache(network: PreTrainedModel) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=network.config)


def _copy_states(cache: Any) -> list[dict[int, Tensor]]:
    """Copies of all states of every layer; an empty dict for a layer without states."""
    return [
        {index: state.clone() for index, state in enumerate(_layer_states(layer)) if state is not None}
        for layer in cache.layers
    ]


def _restore_states(cache: Any, saved: list[dict[int, Tensor]], length: int) -> None:
    for layer, states in zip(cache.layers, saved, strict=True):
        for index, state in enumerate(_layer_states(layer)):
            if index in states and state is not None:
                state.copy_(states[index])
        if getattr(layer, "keys", None) is not None:
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]


def _layer_states(layer: Any) -> list[Tensor | None]:
    """The states of a recurrent layer, in a fixed order."""
    groups = (getattr(layer, "conv_states", {}), getattr(layer, "recurrent_states", {}))
    return [group[key] for group in groups for key in sorted(group)]
