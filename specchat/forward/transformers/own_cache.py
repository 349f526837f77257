"""Plain decoding of networks over a cache of transformers' own, one token in a pass.

These networks have recurrent layers, which fold the whole text into one state, or attention that does not follow our
masks (ALiBi). A state has no rollback, so a text that loses tokens is read again from its beginning. Our `KVCache` only
counts rows.

Plugins decode drafts over such caches, and networks that do not continue a state with several tokens
(`register_decoding_forms`). Knows a network of transformers and no drafter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, KVLayout
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.transformers_model import TransformersModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class ReadText:
    cache: Any  # the network's own, after `tokens`
    tokens: list[int] = field(default_factory=list[int])


class OwnCacheModel(TransformersModel):
    """A network of transformers over its own cache."""

    def __init__(
        self, network: PreTrainedModel, context_window: int | None = None, limits: BatchLimits | None = None
    ) -> None:
        super().__init__(network, context_window, limits)
        self.supports_trees, self.max_rows = False, 1
        self._texts: WeakKeyDictionary[KVCache, ReadText] = WeakKeyDictionary()

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

    def _text_at(self, cache: KVCache) -> ReadText:
        """The state after the committed tokens; where it has seen more, they are read again."""
        known = self._texts.get(cache)
        if known is not None and len(known.tokens) == cache.length:
            return known
        self._texts[cache] = text = self._new_text()
        if known is not None and cache.length:
            self._read(text, known.tokens[: cache.length])
        return text

    def _new_text(self) -> ReadText:
        return ReadText(self._new_cache())

    def _read(self, text: ReadText, tokens: list[int]) -> ModelOutput:
        output, text.cache = self._run_network(text.cache, len(text.tokens), tokens, rows=1)
        text.tokens += tokens
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
        after = getattr(out, self._cache_name, None)
        return ModelOutput(out.logits[0, -rows:], self._hidden_states()), cache if after is None else after

    def _new_cache(self) -> Any:
        """An empty cache."""
        from transformers import DynamicCache

        return DynamicCache(config=self.network.config)


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
