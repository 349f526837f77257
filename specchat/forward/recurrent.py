"""Networks with layers that fold the whole text into one state: Qwen3-Next, Qwen3.5, LFM2 and what is built like them.

Such a state cannot be cut back: a pass over guesses that fell has spoilt it. So the state from before the pass is kept,
and the tokens that became sure since then are read again at the head of the next pass, where they cost a few more rows
but no pass of their own. Trees would need a state for every branch, so these networks take chains only.

The network's own cache holds keys, values and states; our `KVCache` only counts, and its `floor` says how far back it
can be cut. A deeper cut forgets everything, and the text is read anew.
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

MAX_REPLAYED_TOKENS = 16  # tokens read again in front of a pass; more get a pass of their own, once


@dataclass
class _RecurrentState:
    """What the network remembers of one text."""

    cache: Any  # its cache, after `length` tokens and those of the last pass
    length: int = 0
    saved_states: list[dict[int, Tensor]] = field(
        default_factory=list[dict[int, Tensor]]
    )  # of the layers, after `length`
    last_tokens: list[int] = field(default_factory=list[int])  # tokens of the last pass


class RecurrentModel(TransformersModel):
    """A network of transformers with recurrent layers, over its own cache."""

    def __init__(
        self, network: PreTrainedModel, context_window: int | None = None, limits: BatchLimits | None = None
    ) -> None:
        super().__init__(network, context_window, limits)
        self.supports_trees = False
        self._state_by_cache: WeakKeyDictionary[KVCache, _RecurrentState] = WeakKeyDictionary()

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """Score every node of a chain. [N, V]"""
        assert tree.is_chain, "a tree for a network that takes chains only"
        return self._forward_tokens(tree.tokens, cache, rows=len(tree))

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        output = self._forward_tokens(tokens, cache, rows=1)
        cache.commit(list(range(len(tokens))))
        return output

    def _kv_layout(self) -> KVLayout:
        return KVLayout((), self.network.dtype, self.network.device)

    @torch.inference_mode()
    def _forward_tokens(self, tokens: list[int], cache: KVCache, rows: int) -> ModelOutput:
        memory, again = self._restore_committed_state(cache)
        if len(again) > MAX_REPLAYED_TOKENS:
            self._run_network(memory, again, rows=1)
            memory, again = self._restore_committed_state(cache)
        output = self._run_network(memory, again + tokens, rows)
        cache.rollback_floor = memory.length
        features = output.hidden_states[len(again) :] if output.hidden_states is not None else None
        return ModelOutput(output.logits, features)

    def _restore_committed_state(self, cache: KVCache) -> tuple[_RecurrentState, list[int]]:
        """The memory with a state that holds sure tokens only, and the sure tokens that are to be read again."""
        memory = self._state_by_cache.get(cache)
        if memory is None or cache.length < memory.length:
            assert cache.length == 0, "a text was cut below the state that is kept of it"
            memory = self._state_by_cache[cache] = _RecurrentState(_empty_cache(self.network))
        sure = cache.length - memory.length
        if sure == len(memory.last_tokens):
            memory.length, memory.last_tokens, memory.saved_states = cache.length, [], _copy_states(memory.cache)
            return memory, []
        if memory.length == 0:
            memory.cache = _empty_cache(self.network)
            return memory, memory.last_tokens[:sure]
        again, memory.last_tokens = memory.last_tokens[:sure], []
        _restore_states(memory.cache, memory.saved_states, memory.length)
        return memory, again

    def _run_network(self, state: _RecurrentState, tokens: list[int], rows: int) -> ModelOutput:
        ids = torch.tensor([tokens], device=self.network.device)
        out = self.network(input_ids=ids, past_key_values=state.cache, use_cache=True, logits_to_keep=rows)
        state.last_tokens = tokens
        return ModelOutput(out.logits[0], self._hidden_states())


def has_recurrent_layers(network: PreTrainedModel) -> bool:
    """Whether a network has layers whose memory cannot be cut back."""
    return any(hasattr(layer, "recurrent_states") for layer in _empty_cache(network).layers)


def _empty_cache(network: PreTrainedModel) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=network.config)


def _copy_states(cache: Any) -> list[dict[int, Tensor]]:
    """Copies of every state of every layer; an empty dict where a layer has none."""
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
    """What a recurrent layer remembers, in a fixed order."""
    kinds = (getattr(layer, "conv_states", {}), getattr(layer, "recurrent_states", {}))
    return [kind[key] for kind in kinds for key in sorted(kind)]
