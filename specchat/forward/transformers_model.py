"""The adapter that runs any causal language model of transformers over our own KV cache.

Implements `specchat.engine.model.Model`. Knows tensors and positions; knows no drafter and no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import copy_to_device
from specchat.engine.model import FINAL_NORM, ModelOutput, limit_context_window
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits, RowBatch, chain_nodes

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TransformersModel:
    """Any decoder-only model of transformers with attention layers, over our own cache.

    Masks are explicit: a node sees the sure text and its own ancestors, and in a sliding layer only what lies within
    the window by *position*; rows of a tree are not in the order of their positions.
    """

    def __init__(
        self, network: PreTrainedModel, context_window: int | None = None, limits: BatchLimits | None = None
    ) -> None:
        self.network: Any = network.eval()  # transformers' own types change from family to family
        self.limits = limits or BatchLimits()
        config: Any = network.config.get_text_config()
        self.context_window = limit_context_window(context_window, getattr(config, "max_position_embeddings", None))
        self.vocab_size = int(self.network.get_output_embeddings().weight.shape[0])
        self.prefill_chunk, self.max_rows, self.supports_trees = (
            self.limits.prefill_chunk,
            self.limits.max_rows,
            not self.limits.exact,
        )
        self.pool = KVPool(self._kv_layout())
        self.bytes = sum(weight.numel() * weight.element_size() for weight in network.parameters())
        self.hidden_state_layers: tuple[int, ...] = ()
        self._captured: dict[int, Tensor] = {}
        self._hooks: list[Any] = []
        kinds = set[str](getattr(config, "layer_types", None) or ())
        sliding = getattr(config, "sliding_window", None)
        self._layer_types = tuple(sorted(kinds)) if "sliding_attention" in kinds else ()
        self._sliding_window = int(sliding) if sliding and (self._layer_types or not kinds) else None
        self._uses_additive_mask = config._attn_implementation == "eager"  # noqa: SLF001 - else a mask is bool

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        for hook in self._hooks:
            hook.remove()
        decoder = self.network.get_decoder()
        layers = [decoder.embed_tokens, *decoder.layers]
        places = {tap: decoder.norm if tap == FINAL_NORM else layers[tap] for tap in hidden_state_layers}
        self.hidden_state_layers, self._captured = hidden_state_layers, {}
        self._hooks = [module.register_forward_hook(self._capture_hook(tap)) for tap, module in places.items()]

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings as the first layer gets them. [n] -> [n, D]"""
        return self.network.get_input_embeddings()(tokens)

    @torch.inference_mode()
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """The output matrix alone. [n, D] -> [n, V]"""
        return self.network.get_output_embeddings()(hidden_states)

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        """Score every node of the tree in one pass. [N, V]"""
        output = self._forward(self.limits.batch_for_tree(tree, cache), cache)
        return ModelOutput(
            output.logits[: len(tree)], output.hidden_states[: len(tree)] if output.hidden_states is not None else None
        )

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        output = self._forward(self.limits.batch_for_nodes(chain_nodes(tokens), cache), cache, last_only=True)
        cache.commit(list(range(len(tokens))))
        return output

    @torch.inference_mode()
    def _forward(self, nodes: RowBatch, cache: KVCache, last_only: bool = False) -> ModelOutput:
        device = self.network.device
        out = self.network(
            input_ids=copy_to_device(nodes.tokens, device)[None],
            position_ids=nodes.positions.to(device)[None],
            attention_mask=self._attention_masks(nodes),
            past_key_values=_as_transformers_cache(cache, len(self.pool.layout.shapes), nodes.kv_length),
            use_cache=True,
            logits_to_keep=1 if last_only else 0,
        )
        return ModelOutput(out.logits[0], self._hidden_states())

    def _kv_layout(self) -> KVLayout:
        return kv_layout_of(self.network)

    def _hidden_states(self) -> Tensor | None:
        return (
            torch.cat([self._captured[tap] for tap in self.hidden_state_layers], dim=-1)
            if self.hidden_state_layers
            else None
        )

    def _attention_masks(self, nodes: RowBatch) -> Tensor | dict[str, Tensor]:
        """What each kind of layer sees. [1, 1, N, width]"""
        if self._sliding_window is None:
            return self._attention_mask(nodes.attention_mask)
        near = nodes.sliding_window_mask(self._sliding_window)
        if not self._layer_types:
            return self._attention_mask(near)
        return {
            kind: self._attention_mask(near if kind == "sliding_attention" else nodes.attention_mask)
            for kind in self._layer_types
        }

    def _attention_mask(self, allowed: Tensor) -> Tensor:
        mask = allowed.to(self.network.device)[None, None]
        if not self._uses_additive_mask:
            return mask
        lowest = torch.finfo(self.network.dtype).min
        return torch.zeros(mask.shape, dtype=self.network.dtype, device=mask.device).masked_fill_(~mask, lowest)

    def _capture_hook(self, layer: int) -> Any:
        def catch(_module: nn.Module, _inputs: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            self._captured[layer] = hidden[0]

        return catch


def kv_layout_of(network: PreTrainedModel) -> KVLayout:
    """What a row of keys and values holds, found by asking the network itself with one token."""
    from transformers import DynamicCache

    probe: Any = DynamicCache()
    with torch.inference_mode():
        network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.device), past_key_values=probe)
    shapes = tuple((lay.keys.shape[1], lay.keys.shape[3], lay.values.shape[3]) for lay in probe.layers)
    return KVLayout(shapes, probe.layers[0].keys.dtype, network.device)


def _as_transformers_cache(cache: KVCache, layer_count: int, kv_length: int) -> Any:
    """Our cache, as transformers wants to see it. Imported late: transformers takes seconds to import."""
    from specchat.forward.transformers_cache import TransformersCache

    return TransformersCache(cache, layer_count, kv_length)
