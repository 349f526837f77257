"""The heads that draft from the target's own hidden states: EAGLE, EAGLE-3, MTP and Medusa, under published names.

EAGLE, EAGLE-3 and MTP are one block that reads pairs (feature of token t, embedding of token t+1) and is then fed its own
output. Training runs the block several times in a row, as drafting does: in run k a place sees the true pairs up
to k places back, and after them only what the earlier runs made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specchat.train.trainable_llama import (
    Attention,
    DecoderLayer,
    ModelShape,
    RMSNorm,
    RotaryTable,
    SwigluMLP,
    rotary_table,
)


@dataclass(frozen=True)
class HeadOutput:
    """One run over a row: what feeds the next run [B, L, D], and what predicts the token after next [B, L, D]."""

    feature: Tensor
    prediction: Tensor


@dataclass
class HeadKVCache:
    """Keys and values of the runs so far, each [B, H, L, W]."""

    keys: list[Tensor]
    values: list[Tensor]


def training_time_test_attention(
    attention: Attention, inputs: Tensor, rope: RotaryTable, kv_cache: HeadKVCache
) -> Tensor:
    """Attention of run k: true pairs up to k places back, then one entry from each later run, its own the last."""
    batch, length, _ = inputs.shape
    query = rope.apply_rope(attention.split_heads(attention.q_proj(inputs)))
    kv_cache.keys.append(rope.apply_rope(attention.split_heads(attention.k_proj(inputs))))
    kv_cache.values.append(attention.split_heads(attention.v_proj(inputs)))
    run = len(kv_cache.keys) - 1
    if run == 0:
        mixed = F.scaled_dot_product_attention(query, kv_cache.keys[0], kv_cache.values[0], is_causal=True)
        return attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
    allowed = torch.ones(length, length, dtype=torch.bool, device=inputs.device).tril(-run)
    scale = 1.0 / math.sqrt(attention.head_dim)
    true = (query @ kv_cache.keys[0].transpose(-1, -2)).float() * scale
    true = true.masked_fill(~allowed, float("-inf"))
    later = [
        ((query * shift_right(kv_cache.keys[index], run - index)).sum(-1, keepdim=True).float() * scale)
        for index in range(1, run + 1)
    ]
    shares = torch.cat([true, *later], dim=-1).softmax(-1).to(query.dtype)
    mixed = shares[..., :length] @ kv_cache.values[0]
    for place, index in enumerate(range(1, run + 1)):
        mixed = mixed + shares[..., length + place : length + place + 1] * shift_right(
            kv_cache.values[index], run - index
        )
    return attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


def shift_right(rows: Tensor, count: int) -> Tensor:
    """Rows moved `count` places to the right along the length; the first ones repeat and carry no loss."""
    if count == 0:
        return rows
    return torch.cat((rows[..., :1, :].expand(*rows.shape[:-2], count, rows.shape[-1]), rows[..., :-count, :]), dim=-2)


class Eagle3Layer(nn.Module):
    """The one layer of EAGLE-3: norms for embedding and feature, attention over both side by side."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=2)
        self.mlp = SwigluMLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Eagle3(nn.Module):
    """An EAGLE-3 head with three taps and a reduced vocabulary, in the names that SafeAILab publishes."""

    d2t: Tensor
    t2d: Tensor
    hidden_state_scale: Tensor  # brings every tap to size one while training; part of `fc` in what ships

    def __init__(self, shape: ModelShape, draft_token_ids: Tensor) -> None:
        """`kept` [Vd]: the ids of the target's vocabulary that the head can draft, ascending."""
        super().__init__()
        self.shape = replace(shape, layers=1)
        self.fc = nn.Linear(3 * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = Eagle3Layer(self.shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, len(draft_token_ids), bias=False)
        inside = torch.zeros(shape.vocab_size, dtype=torch.bool)
        inside[draft_token_ids] = True
        self.register_buffer("d2t", draft_token_ids - torch.arange(len(draft_token_ids)))
        self.register_buffer("t2d", inside)
        self.register_buffer("hidden_state_scale", torch.ones(3 * shape.hidden_size), persistent=False)
        nn.init.zeros_(self.midlayer.mlp.down_proj.weight)

    @property
    def draft_token_ids(self) -> Tensor:
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def unroll(self, hidden_states: Tensor, embedded: Tensor, step_count: int) -> Iterator[HeadOutput]:
        """taps [B, L, 3D] of tokens 0.., embedded [B, L, D] of tokens 1.. -> `count` runs over the row."""
        hidden = self.fc(hidden_states * self.hidden_state_scale)
        turns = rotary_table(hidden.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        past = HeadKVCache([], [])
        block = self.midlayer
        for _ in range(step_count):
            fused = torch.cat((block.input_layernorm(embedded), block.hidden_norm(hidden)), dim=-1)
            feature = hidden + training_time_test_attention(block.self_attn, fused, turns, past)
            feature = feature + block.mlp(block.post_attention_layernorm(feature))
            yield HeadOutput(feature, self.norm(feature))
            hidden = shift_right(feature, 1)


class Eagle1Layer(nn.Module):
    """A Llama layer without the norm in front of its attention."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=1)
        self.mlp = SwigluMLP(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Eagle1(nn.Module):
    """The first EAGLE (arXiv 2401.15077; EAGLE-2 has the same weights), in the names that SafeAILab publishes.

    What it makes is meant to be the target's next state after the final norm, so the target's output matrix reads it.
    """

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = replace(shape, layers=1)
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layers = nn.ModuleList([Eagle1Layer(self.shape)])
        nn.init.zeros_(self.layer.mlp.down_proj.weight)

    @property
    def layer(self) -> Eagle1Layer:
        return cast("Eagle1Layer", self.layers[0])

    def unroll(self, hidden: Tensor, embedded: Tensor, step_count: int) -> Iterator[HeadOutput]:
        """hidden [B, L, D] after the target's final norm, embedded [B, L, D] of the tokens after."""
        turns = rotary_table(hidden.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        past = HeadKVCache([], [])
        layer = self.layer
        for _ in range(step_count):
            fused = self.fc(torch.cat((embedded, hidden), dim=-1))
            feature = fused + training_time_test_attention(layer.self_attn, fused, turns, past)
            feature = feature + layer.mlp(layer.post_attention_layernorm(feature))
            yield HeadOutput(feature, feature)
            hidden = shift_right(feature, 1)


class MtpBlock(nn.Module):
    """A block for multi-token prediction, in the names of DeepSeek-V3; fed back after its norm."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.enorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hnorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layer = DecoderLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        nn.init.normal_(self.eh_proj.weight, std=0.3 * shape.hidden_size**-0.5)

    def unroll(self, hidden: Tensor, embedded: Tensor, step_count: int) -> Iterator[HeadOutput]:
        """hidden [B, L, D] after the target's final norm, embedded [B, L, D] of the tokens after."""
        turns = rotary_table(hidden.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        past = HeadKVCache([], [])
        for _ in range(step_count):
            fused = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), dim=-1))
            feature = fused + training_time_test_attention(
                self.layer.self_attn, self.layer.input_layernorm(fused), turns, past
            )
            feature = self.norm(feature + self.layer.mlp(self.layer.post_attention_layernorm(feature)))
            yield HeadOutput(feature, feature)
            hidden = shift_right(feature, 1)


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + F.silu(self.linear(hidden))


class Medusa(nn.ModuleList):
    """Residual blocks, one a position ahead, that all share the target's output matrix: keys `{k}.0.linear.*`."""

    def __init__(self, width: int, count: int = 4) -> None:
        super().__init__(nn.ModuleList([ResidualBlock(width)]) for _ in range(count))

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """hidden [..., D] after the final norm -> one [..., D] for each of the tokens t+2, t+3, ..."""
        return [block(hidden) for block in self.blocks()]

    def blocks(self) -> list[ResidualBlock]:
        return [cast("ResidualBlock", cast("nn.ModuleList", head)[0]) for head in self]
