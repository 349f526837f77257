"""Networks that decode over transformers' own cache, chains only.

They have recurrent layers, which fold the whole text into one state (Qwen3-Next, Qwen3.5, LFM2), or attention that does
not follow our masks (ALiBi).

Rollback of a recurrent state is impossible: a pass over draft tokens that are rejected later has changed it. So this
adapter saves the state before a pass, and replays the tokens committed since then at the start of the next pass, where
they cost a few more rows but no pass of their own. Trees would need a state for every branch.

The network's own cache has the keys, values and states; some networks keep a state in their modules instead, which is
moved in and out for each text. Our `KVCache` only counts rows, and its `rollback_floor` is the length of the saved
state. A rollback below it clears the cache, and the text is prefilled again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from specchat.engine.cache import KVCache, KVLayout
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers_model import TransformersModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_REPLAYED_TOKENS = 16  # more tokens are replayed in a pass of their own
WHOLE_PROMPT = 2**20  # tokens of a prefill pass that must not be continued by another
CACHE_NAMES = ("past_key_values", "cache_params", "state")  # of the parameter and of the output, by family
Saved = list[tuple[Any, dict[str, Any]]]  # an object and copies of its attributes


@dataclass
class _RecurrentState:
    cache: Any  # the network's own, after `length` tokens and the tokens of the last pass; None: it will make one
    module_states: list[Any]  # of the modules that keep a state themselves
    length: int = 0
    saved: Saved = field(default_factory=list[tuple[Any, dict[str, Any]]])  # after `length`
    saved_module_states: list[Any] = field(default_factory=list[Any])
    last_tokens: list[int] = field(default_factory=list[int])  # of the last pass


class RecurrentModel(TransformersModel):
    """A transformers model over its own cache. With `is_stepwise`, only the first pass over a text may have several
    tokens, because the network does not continue a state with more than one.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        context_window: int | None = None,
        limits: BatchLimits | None = None,
        is_stepwise: bool = False,
    ) -> None:
        super().__init__(network, context_window, limits)
        self.supports_trees, self.is_stepwise = False, is_stepwise
        if is_stepwise:
            self.max_rows, self.prefill_chunk = 1, WHOLE_PROMPT
        self._cache_name = next((name for name in CACHE_NAMES if name in self._parameters), CACHE_NAMES[0])
        self._state_modules, self._makes_cache = _observe_first_pass(network, self._cache_name)
        self._initial_states = [getattr(module, name) for module, name in self._state_modules]
        self._state_by_cache: WeakKeyDictionary[KVCache, _RecurrentState] = WeakKeyDictionary()

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        assert tree.is_chain, "a network over its own cache supports chains only"
        return self._forward_tokens(tree.tokens, cache, rows=len(tree))

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        output = self._forward_tokens(tokens, cache, rows=1)
        cache.commit(list(range(len(tokens))))
        return output

    def _kv_layout(self) -> KVLayout:
        return KVLayout((), self.network.dtype, self.network.device)

    def _new_cache(self) -> Any:
        """An empty cache; None where the network makes one of its own class in its first pass."""
        from transformers import DynamicCache

        return None if self._makes_cache else DynamicCache(config=self.network.config)

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
            state = self._state_by_cache[cache] = _RecurrentState(self._new_cache(), _copy(self._initial_states))
        committed = cache.length - state.length
        if committed == len(state.last_tokens):
            state.length, state.last_tokens, state.saved = cache.length, [], save_cache(state.cache)
            state.saved_module_states = _copy(state.module_states)
            return state, []
        replayed, state.last_tokens = state.last_tokens[:committed], []
        if state.length == 0:
            state.cache, state.module_states = self._new_cache(), _copy(self._initial_states)
        else:
            restore_cache(state.saved)
            state.module_states = _copy(state.saved_module_states)
        return state, replayed

    def _run_network(self, state: _RecurrentState, tokens: list[int], rows: int) -> ModelOutput:
        if not self.is_stepwise or not state.length or len(tokens) == 1:
            return self._run_pass(state, tokens, rows)
        outputs = [self._run_pass(state, [token], 1) for token in tokens]
        state.last_tokens = tokens
        hidden_states = [each.hidden_states for each in outputs if each.hidden_states is not None]
        return ModelOutput(
            torch.cat([each.logits for each in outputs])[-rows:], torch.cat(hidden_states) if hidden_states else None
        )

    def _run_pass(self, state: _RecurrentState, tokens: list[int], rows: int) -> ModelOutput:
        first = state.length + len(state.last_tokens)
        for (module, name), value in zip(self._state_modules, state.module_states, strict=True):
            setattr(module, name, value)
        device = self.network.device
        out = self.network(
            **self._accepted(
                input_ids=torch.tensor([tokens], device=device),
                position_ids=torch.arange(first, first + len(tokens), device=device)[None],
                use_cache=True,
                logits_to_keep=rows,
            ),
            **{self._cache_name: state.cache},
        )
        state.last_tokens = state.last_tokens + tokens
        if self._makes_cache:
            state.cache = getattr(out, self._cache_name)
        state.module_states = [getattr(module, name) for module, name in self._state_modules]
        return ModelOutput(out.logits[0, -rows:], self._hidden_states())


def has_recurrent_layers(network: PreTrainedModel) -> bool:
    """Whether a network has layers whose state has no rollback."""
    from transformers import DynamicCache

    layers: list[Any] = DynamicCache(config=network.config).layers
    return any(hasattr(layer, "recurrent_states") for layer in layers)


def _observe_first_pass(network: PreTrainedModel, cache_name: str) -> tuple[list[tuple[nn.Module, str]], bool]:
    """The attributes of modules that a pass changes, states outside the cache, and whether it makes a cache."""
    before = {(module, name): value for module, name, value in _plain_attributes(network)}
    with torch.inference_mode():
        out = network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.device), use_cache=True)
    changed = [
        (module, name)
        for module, name, value in _plain_attributes(network)
        if isinstance(value, Tensor) and value is not before.get((module, name))
    ]
    for module, name in changed:
        setattr(module, name, before.get((module, name)))
    return changed, getattr(out, cache_name, None) is not None


def _plain_attributes(network: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """Tensors, and attributes that are None until the first pass, that are neither weights nor buffers."""
    for module in network.modules():
        for name, value in vars(module).items():
            if value is None or isinstance(value, Tensor):
                yield module, name, value


def save_cache(cache: Any) -> Saved:
    """Copies of all states of a cache of transformers, and the number of rows of those layers that keep all rows."""
    if not hasattr(cache, "layers"):
        return [(cache, _copy(vars(cache)))] if hasattr(cache, "__dict__") else []
    attributes = {name: _copy(value) for name, value in vars(cache).items() if name != "layers"}
    return [(cache, attributes), *((layer, _save_layer(layer)) for layer in cache.layers)]


def restore_cache(saved: Saved) -> None:
    for owner, attributes in saved:
        for name, value in attributes.items():
            setattr(owner, name, getattr(owner, name)[:, :, : value.rows] if isinstance(value, _Rows) else _copy(value))


@dataclass(frozen=True)
class _Rows:
    """The first rows of keys or values. Only their number is saved, because a longer text does not change them."""

    rows: int


def _save_layer(layer: Any) -> dict[str, Any]:
    return {name: _save_attribute(layer, name, value) for name, value in vars(layer).items()}


def _save_attribute(layer: Any, name: str, value: Any) -> Any:
    if name in ("keys", "values") and isinstance(value, Tensor) and value.dim() == 4 and not layer.is_sliding:
        return _Rows(value.shape[2])
    return _copy(value)


def _copy(value: Any) -> Any:
    """A copy that a later pass cannot change; values that are no tensors are not changed by passes."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copy(each) for each in value]
    return value
