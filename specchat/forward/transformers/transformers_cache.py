"""Our KV cache as a transformers `Cache`: every layer writes its rows to our slot.

Only the transformers adapter uses it, and only this file imports transformers' cache classes.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from specchat.engine.cache import KVCache


class TransformersCache(Cache):
    def __init__(self, cache: KVCache, layer_count: int, kv_length: int) -> None:
        super().__init__(layers=[TransformersCacheLayer(cache, layer, kv_length) for layer in range(layer_count)])


class TransformersCacheLayer(CacheLayerMixin):
    is_sliding = False  # layers with a sliding window keep all rows too; the mask applies the window

    def __init__(self, cache: KVCache, layer_index: int, kv_length: int) -> None:
        super().__init__()
        self.cache, self.layer_index, self.kv_length = cache, layer_index, kv_length
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.cache.write(self.layer_index, key_states, value_states, self.kv_length)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The rows are allocated already."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.kv_length, 0

    def get_seq_length(self) -> int:
        return self.cache.length

    def get_max_length(self) -> int:
        return self.cache.require_slot().rows
