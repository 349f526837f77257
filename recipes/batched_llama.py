"""A Llama that computes many rows at once, for answers and their hidden states. Knows Llama models without bias.

It knows neither questions nor files of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from specchat_hybrids.gguf_conversion import safetensors_folder
from specchat_train.export_weights import eagle3_hidden_state_layers
from specchat_train.frozen_target import head_shape, read_config

CPU = torch.device("cpu")
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, query, key, value [B, H, L, head_dim] -> attended


class BatchKVCache:
    """Keys and values of a batch, for each layer. [B, KV heads, L, head_dim]"""

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values

    def keep(self, rows: Tensor) -> None:
        """Keep these rows only, one layer after the other: two whole caches may not fit."""
        for layers in (self.keys, self.values):
            for index, layer in enumerate(layers):
                layers[index] = layer[rows]

    def rows(self, rows: slice | Tensor) -> BatchKVCache:
        """A view (slice) or a copy (indices) of some rows."""
        return BatchKVCache([key[rows] for key in self.keys], [value[rows] for value in self.values])


class BatchedLlama:
    """A Llama whose rows end at the same position: shorter prompts are padded on the left."""

    def __init__(self, folder: Path, device: torch.device = CPU, dtype: torch.dtype = torch.bfloat16) -> None:
        stored = load_file(safetensors_folder(folder) / "model.safetensors")
        self.dtype = dtype
        self.weights, self.config = (
            {name: stored[name].to(device, self.dtype) for name in stored},
            read_config(folder),
        )
        self.device = device
        self.shape = head_shape(self.config, str(folder))
        self.kv_heads: int = self.config["num_key_value_heads"]
        self.embedding = self.weights["model.embed_tokens.weight"]
        self.lm_head = self.weights.get("lm_head.weight", self.embedding)
        self.state_layers = eagle3_hidden_state_layers(self.shape.layers)
        powers = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float32) / self.shape.head_dim
        self.inv_freq = (1.0 / self.shape.rope_theta**powers).to(device)
        self.qkv = [self._joined(layer, "self_attn", ("q_proj", "k_proj", "v_proj")) for layer in self._layers]
        self.gate_up = [self._joined(layer, "mlp", ("gate_proj", "up_proj")) for layer in self._layers]

    @property
    def _layers(self) -> Sequence[int]:
        return range(self.shape.layers)

    def _joined(self, layer: int, block: str, names: tuple[str, ...]) -> Tensor:
        """Matrices with the same input as one."""
        return torch.cat([self.weights.pop(f"model.layers.{layer}.{block}.{name}.weight") for name in names])

    def new_cache(self, rows: int, length: int) -> BatchKVCache:
        """Of zeros: what a mask hides is multiplied with 0, and must not be NaN."""
        size = (rows, self.kv_heads, length, self.shape.head_dim)
        keys, values = ([torch.zeros(size, dtype=self.dtype, device=self.device) for _ in self._layers] for _ in "kv")
        return BatchKVCache(keys, values)

    def forward(
        self, tokens: Tensor, positions: Tensor, cache: BatchKVCache, start: int, mask: Tensor, padded: int = 0
    ) -> Tensor:
        """tokens [B, L] at cache row `start` -> the states for EAGLE-3 and after the final norm. [B, L, 4 * D]

        Attention reads the cache up to the last new row, or up to `padded`, and the mask has as many columns.
        """
        end = start + tokens.shape[1]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            cache.keys[layer][:, :, start:end] = key
            cache.values[layer][:, :, start:end] = value
            read = slice(0, padded or end)
            return self._attention(query, cache.keys[layer][:, :, read], cache.values[layer][:, :, read], mask)

        return self._run(tokens, positions, attend)

    def read_texts(self, tokens: Tensor) -> Tensor:
        """The same for texts that begin at position 0 and are padded on the right, without a cache. [B, L]"""

        def attend(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

        return self._run(tokens, torch.arange(tokens.shape[1], device=tokens.device)[None], attend)

    def _run(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        hidden, states = F.embedding(tokens, self.embedding), list[Tensor]()
        angles = (positions[:, None, :, None].float() * self.inv_freq).repeat(1, 1, 1, 2)
        cosine, sine = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        rotated = self.shape.num_heads + self.kv_heads
        for layer in self._layers:
            if layer in self.state_layers:
                states.append(hidden)
            normed = self._norm(hidden, f"model.layers.{layer}.input_layernorm")
            heads = F.linear(normed, self.qkv[layer]).unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)
            query, key = _rotated(heads[:, :rotated], cosine, sine).split((self.shape.num_heads, self.kv_heads), dim=1)
            attended = attend(layer, query, key, heads[:, rotated:])
            hidden = hidden + self._linear(attended.transpose(1, 2).flatten(2), layer, "self_attn.o_proj")
            normed = self._norm(hidden, f"model.layers.{layer}.post_attention_layernorm")
            gate, up = F.linear(normed, self.gate_up[layer]).chunk(2, dim=-1)
            hidden = hidden + self._linear(F.silu(gate) * up, layer, "mlp.down_proj")
        return torch.cat((*states, self._norm(hidden, "model.norm")), dim=-1)

    def logits(self, states: Tensor) -> Tensor:
        """Of the token after each row of states. [B, 4 * D] -> [B, V]"""
        return self.logits_of(states[:, -self.shape.hidden_size :])

    def logits_of(self, final: Tensor) -> Tensor:
        """The same, of states after the final norm. [B, D] -> [B, V]"""
        return F.linear(final, self.lm_head)

    def _attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Of one new token the query heads of a key head are its rows: a quarter of the time of repeated keys."""
        if query.shape[2] > 1 and not query.is_cpu:  # with a mask and groups, GPUs have no fast kernel
            keys, values = (each.repeat_interleave(query.shape[1] // self.kv_heads, dim=1) for each in (keys, values))
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        if query.shape[2] > 1:
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        grouped = query.squeeze(2).unflatten(1, (self.kv_heads, -1))
        return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1, 2).unsqueeze(2)

    def _norm(self, hidden: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.rms_norm(hidden, weight.shape, weight, self.shape.rms_norm_eps)

    def _linear(self, hidden: Tensor, layer: int, name: str) -> Tensor:
        return F.linear(hidden, self.weights[f"model.layers.{layer}.{name}.weight"])


def _rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine


def causal_mask(padding: Tensor, queries: int, keys: int, dtype: torch.dtype) -> Tensor:
    """Causal, without the padding; a padded row sees itself, as a row that sees nothing is NaN. [B, 1, L, L]"""
    own = torch.arange(keys - queries, keys, device=padding.device)[:, None]
    key = torch.arange(keys, device=padding.device)[None]
    is_seen = (key <= own) & (key >= padding[:, None, None]) | (key == own)
    empty = torch.zeros(is_seen.shape, dtype=dtype, device=padding.device)
    return empty.masked_fill_(~is_seen, float("-inf"))[:, None]
