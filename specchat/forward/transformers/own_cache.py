"""Plain decoding of networks over a cache of transformers' own, one token in a pass.

These networks have recurrent layers, which fold the whole text into one state, or attention that does not follow our
masks (ALiBi). A state has no rollback, so a text that loses tokens is read again from its beginning. Some networks keep
a state in their modules instead of the cache, which is moved in and out for each text. Our `KVCache` only counts rows.

Plugins decode drafts over such caches (`register_decoding_forms`). Knows a network of transformers and no drafter.
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
from specchat.forward.transformers.transformers_model import TransformersModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WHOLE_PROMPT = 2**20  # tokens of a prefill pass that must not be continued by another


@dataclass
class _Text:
    cache: Any  # the network's own, after `tokens`; None: it will make one
    module_states: list[Any]  # of the modules that keep a state themselves
    tokens: list[int] = field(default_factory=list[int])


class OwnCacheModel(TransformersModel):
    """A network of transformers over its own cache.

    With `is_stepwise`, only the first pass over a text may have several tokens, because the network does not continue a
    state with more than one.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        context_window: int | None = None,
        limits: BatchLimits | None = None,
        is_stepwise: bool = False,
    ) -> None:
        super().__init__(network, context_window, limits)
        self.supports_trees, self.max_rows, self.is_stepwise = False, 1, is_stepwise
        if is_stepwise:
            self.prefill_chunk = WHOLE_PROMPT
        self._state_modules, self._makes_cache = _observe_first_pass(network, self._cache_name)
        self._initial_states = [getattr(module, name) for module, name in self._state_modules]
        self._texts: WeakKeyDictionary[KVCache, _Text] = WeakKeyDictionary()

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        assert len(tree) == 1, "plain decoding has one token in a pass"
        return self._extend(cache, tree.tokens)

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        output = self._extend(cache, tokens)
        cache.commit(list(range(len(tokens))))
        cache.network_bytes = cache_bytes(self._texts[cache].cache)
        return output

    def _kv_layout(self) -> KVLayout:
        return KVLayout((), self.network.dtype, self.network.device)

    @torch.inference_mode()
    def _extend(self, cache: KVCache, tokens: list[int]) -> ModelOutput:
        text = self._text_at(cache)
        output = self._read(text, tokens)
        cache.rollback_floor = len(text.tokens)
        return output

    def _text_at(self, cache: KVCache) -> _Text:
        """The state after the committed tokens; where it has seen more, they are read again."""
        known = self._texts.get(cache)
        if known is not None and len(known.tokens) == cache.length:
            return known
        states = [each.clone() if isinstance(each, Tensor) else each for each in self._initial_states]
        self._texts[cache] = text = _Text(self._new_cache(), states)
        if known is not None and cache.length:
            self._read(text, known.tokens[: cache.length])
        return text

    def _read(self, text: _Text, tokens: list[int]) -> ModelOutput:
        is_step_by_step = self.is_stepwise and text.tokens
        parts = [[token] for token in tokens] if is_step_by_step else [tokens]
        outputs = [self._read_part(text, part) for part in parts]
        hidden_states = [each.hidden_states for each in outputs if each.hidden_states is not None]
        return ModelOutput(outputs[-1].logits, torch.cat(hidden_states) if hidden_states else None)

    def _read_part(self, text: _Text, tokens: list[int]) -> ModelOutput:
        self._put_states(text.module_states)
        output, text.cache = self._run_network(text.cache, len(text.tokens), tokens, rows=1)
        text.tokens += tokens
        text.module_states = self._take_states()
        return output

    def _run_network(self, cache: Any, first: int, tokens: list[int], rows: int) -> tuple[ModelOutput, Any]:
        """One pass over tokens from a position on; the logits of the last rows, and the cache after it."""
        device = self.network.device
        inputs = self._accepted(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.arange(first, first + len(tokens), device=device)[None],
            use_cache=True,
            logits_to_keep=rows,
        )
        out = self.network(**inputs, **{self._cache_name: cache})
        after = getattr(out, self._cache_name) if self._makes_cache else cache
        return ModelOutput(out.logits[0, -rows:], self._hidden_states()), after

    def _new_cache(self) -> Any:
        """An empty cache; None where the network makes one of its own class in its first pass."""
        from transformers import DynamicCache

        return None if self._makes_cache else DynamicCache(config=self.network.config)

    def _put_states(self, states: list[Any]) -> None:
        for (module, name), value in zip(self._state_modules, states, strict=True):
            setattr(module, name, value)

    def _take_states(self) -> list[Any]:
        return [getattr(module, name) for module, name in self._state_modules]


def has_recurrent_layers(network: PreTrainedModel) -> bool:
    """Whether a network has layers whose state has no rollback."""
    from transformers import DynamicCache

    layers: list[Any] = DynamicCache(config=network.config).layers
    return any(hasattr(layer, "recurrent_states") for layer in layers)


def cache_bytes(cache: Any) -> int:
    """The bytes of all tensors of a cache."""
    layers: list[Any] = getattr(cache, "layers", None) or []
    owners = [cache, *layers] if hasattr(cache, "__dict__") else []
    return sum(tensor.nbytes for owner in owners for tensor in tensors_in(vars(owner)))


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(each)


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
