"""A Llama that computes many rows at once, for answers and their hidden states. Knows Llama models without bias.

It knows neither questions nor files of answers.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from specchat.weights.gguf.gguf_conversion import safetensors_folder
from specchat_train.export_weights import eagle3_hidden_state_layers
from specchat_train.frozen_target import head_shape, read_config


class BatchKVCache:
    """Keys and values of a batch, for each layer. [B, KV heads, L, head_dim]"""

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values

    def rows(self, rows: slice | Tensor) -> BatchKVCache:
        """A view (slice) or a copy (indices) of some rows."""
        return BatchKVCache([key[rows] for key in self.keys], [value[rows] for value in self.values])


class BatchedLlama:
    """A Llama in bfloat16 whose rows end at the same position: shorter prompts are padded on the left."""

    def __init__(self, folder: Path) -> None:
        stored = load_file(safetensors_folder(folder) / "model.safetensors")
        self.weights, self.config = {name: stored[name].bfloat16() for name in stored}, read_config(folder)
        self.shape = head_shape(self.config, str(folder))
        self.kv_heads: int = self.config["num_key_value_heads"]
        self.embedding = self.weights["model.embed_tokens.weight"]
        self.lm_head = self.weights.get("lm_head.weight", self.embedding)
        self.state_layers = eagle3_hidden_state_layers(self.shape.layers)
        powers = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float32) / self.shape.head_dim
        self.inv_freq = 1.0 / self.shape.rope_theta**powers

    def new_cache(self, rows: int, length: int) -> BatchKVCache:
        size = (rows, self.kv_heads, length, self.shape.head_dim)
        empty = [torch.empty(size, dtype=torch.bfloat16) for _ in range(2 * self.shape.layers)]
        return BatchKVCache(empty[: self.shape.layers], empty[self.shape.layers :])

    def forward(self, tokens: Tensor, positions: Tensor, cache: BatchKVCache, start: int, mask: Tensor) -> Tensor:
        """tokens [B, L] at cache row `start` -> the states for EAGLE-3 and after the final norm. [B, L, 4 * D]"""
        hidden, states = F.embedding(tokens, self.embedding), list[Tensor]()
        angles = (positions[:, None, :, None].float() * self.inv_freq).repeat(1, 1, 1, 2)
        cosine, sine = angles.cos().bfloat16(), angles.sin().bfloat16()
        for layer in range(self.shape.layers):
            if layer in self.state_layers:
                states.append(hidden)
            normed = self._norm(hidden, f"model.layers.{layer}.input_layernorm")
            query, key, value = (self._heads(normed, layer, name) for name in ("q_proj", "k_proj", "v_proj"))
            end = start + tokens.shape[1]
            cache.keys[layer][:, :, start:end] = _rotated(key, cosine, sine)
            cache.values[layer][:, :, start:end] = value
            keys, values = cache.keys[layer][:, :, :end], cache.values[layer][:, :, :end]
            attended = self._attention(_rotated(query, cosine, sine), keys, values, mask)
            hidden = hidden + self._linear(attended.transpose(1, 2).flatten(2), layer, "self_attn.o_proj")
            normed = self._norm(hidden, f"model.layers.{layer}.post_attention_layernorm")
            gate, up = (self._linear(normed, layer, f"mlp.{name}") for name in ("gate_proj", "up_proj"))
            hidden = hidden + self._linear(F.silu(gate) * up, layer, "mlp.down_proj")
        return torch.cat((*states, self._norm(hidden, "model.norm")), dim=-1)

    def logits(self, states: Tensor) -> Tensor:
        """Of the token after each row of states. [B, 4 * D] -> [B, V]"""
        return F.linear(states[:, -self.shape.hidden_size :], self.lm_head)

    def _attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Of one new token the query heads of a key head are its rows: a quarter of the time of repeated keys."""
        if query.shape[2] > 1:
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        grouped = query.squeeze(2).unflatten(1, (self.kv_heads, -1))
        return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1, 2).unsqueeze(2)

    def _norm(self, hidden: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.rms_norm(hidden, weight.shape, weight, self.shape.rms_norm_eps)

    def _linear(self, hidden: Tensor, layer: int, name: str) -> Tensor:
        return F.linear(hidden, self.weights[f"model.layers.{layer}.{name}.weight"])

    def _heads(self, hidden: Tensor, layer: int, name: str) -> Tensor:
        return self._linear(hidden, layer, f"self_attn.{name}").unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)


def _rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine


def causal_mask(padding: Tensor, queries: int, keys: int) -> Tensor:
    """Causal, without the padding; a padded row sees itself, as a row that sees nothing is NaN. [B, 1, L, L]"""
    own = torch.arange(keys - queries, keys)[:, None]
    key = torch.arange(keys)[None]
    is_seen = (key <= own) & (key >= padding[:, None, None]) | (key == own)
    return torch.zeros(is_seen.shape, dtype=torch.bfloat16).masked_fill_(~is_seen, float("-inf"))[:, None]
