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
from specchat.engine.model import Output
from specchat.engine.tree import DraftTree
from specchat.forward.batch import PassShape
from specchat.forward.transformers_model import TransformersModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_REPLAYED = 16  # tokens read again in front of a pass; more get a pass of their own, once


@dataclass
class _Memory:
    """What the network remembers of one text."""

    past: Any  # its cache, after `length` tokens and those of the last pass
    length: int = 0
    states: list[dict[int, Tensor]] = field(default_factory=list[dict[int, Tensor]])  # of the layers, after `length`
    last: list[int] = field(default_factory=list[int])  # tokens of the last pass


class RecurrentModel(TransformersModel):
    """A network of transformers with recurrent layers, over its own cache."""

    def __init__(self, network: PreTrainedModel, window: int | None = None, shape: PassShape | None = None) -> None:
        super().__init__(network, window, shape)
        self.takes_trees = False
        self._memories: WeakKeyDictionary[KVCache, _Memory] = WeakKeyDictionary()

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node of a chain. [N, V]"""
        assert tree.is_chain, "a tree for a network that takes chains only"
        return self._read_on(tree.tokens, cache, rows=len(tree))

    def read(self, tokens: list[int] | Tensor, cache: KVCache) -> Output:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        output = self._read_on(tokens, cache, rows=1)
        cache.commit(list(range(len(tokens))))
        return output

    def _layout(self) -> KVLayout:
        return KVLayout((), self.network.dtype, self.network.device)

    @torch.inference_mode()
    def _read_on(self, tokens: list[int], cache: KVCache, rows: int) -> Output:
        memory, again = self._settled(cache)
        if len(again) > MOST_REPLAYED:
            self._pass(memory, again, rows=1)
            memory, again = self._settled(cache)
        output = self._pass(memory, again + tokens, rows)
        cache.floor = memory.length
        features = output.features[len(again) :] if output.features is not None else None
        return Output(output.logits, features)

    def _settled(self, cache: KVCache) -> tuple[_Memory, list[int]]:
        """The memory with a state that holds sure tokens only, and the sure tokens that are to be read again."""
        memory = self._memories.get(cache)
        if memory is None or cache.length < memory.length:
            assert cache.length == 0, "a text was cut below the state that is kept of it"
            memory = self._memories[cache] = _Memory(_empty_past(self.network))
        sure = cache.length - memory.length
        if sure == len(memory.last):
            memory.length, memory.last, memory.states = cache.length, [], _states_of(memory.past)
            return memory, []
        if memory.length == 0:
            memory.past = _empty_past(self.network)
            return memory, memory.last[:sure]
        again, memory.last = memory.last[:sure], []
        _put_back(memory.past, memory.states, memory.length)
        return memory, again

    def _pass(self, memory: _Memory, tokens: list[int], rows: int) -> Output:
        ids = torch.tensor([tokens], device=self.network.device)
        out = self.network(input_ids=ids, past_key_values=memory.past, use_cache=True, logits_to_keep=rows)
        memory.last = tokens
        return Output(out.logits[0], self._features())


def is_recurrent(network: PreTrainedModel) -> bool:
    """Whether a network has layers whose memory cannot be cut back."""
    return any(hasattr(layer, "recurrent_states") for layer in _empty_past(network).layers)


def _empty_past(network: PreTrainedModel) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=network.config)


def _states_of(past: Any) -> list[dict[int, Tensor]]:
    """Copies of every state of every layer; an empty dict where a layer has none."""
    return [
        {index: state.clone() for index, state in enumerate(_states(layer)) if state is not None}
        for layer in past.layers
    ]


def _put_back(past: Any, saved: list[dict[int, Tensor]], length: int) -> None:
    for layer, states in zip(past.layers, saved, strict=True):
        for index, state in enumerate(_states(layer)):
            if index in states and state is not None:
                state.copy_(states[index])
        if getattr(layer, "keys", None) is not None:
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]


def _states(layer: Any) -> list[Tensor | None]:
    """What a recurrent layer remembers, in a fixed order."""
    kinds = (getattr(layer, "conv_states", {}), getattr(layer, "recurrent_states", {}))
    return [kind[key] for kind in kinds for key in sorted(kind)]
