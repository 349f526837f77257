"""Trainable heads over the target's hidden states: EAGLE, EAGLE-3, MTP and Medusa, with published tensor names.

EAGLE, EAGLE-3 and MTP read pairs (feature of token t, embedding of token t+1) and then their own output. Training
unrolls the block over several steps, as drafting does (training-time test, EAGLE-3, arXiv 2503.01840): in step k a
position attends to true pairs up to k positions back, and then to the outputs of earlier steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specchat_train.trainable_llama import (
    Attention,
    DecoderLayer,
    ModelShape,
    RMSNorm,
    RotaryTable,
    SwigluMLP,
    rotary_table,
)
from specchat_train.unrolled_attention import unrolled_attention


@dataclass(frozen=True)
class HeadOutput:
    """One step: the input of the next step [B, L, D], and the state that predicts the token after next [B, L, D]."""

    feature: Tensor
    prediction: Tensor


@dataclass
class HeadKVCache:
    """Keys and values of the steps so far, each [B, H, L, head_dim]."""

    keys: list[Tensor]
    values: list[Tensor]


def training_time_test_attention(
    attention: Attention, inputs: Tensor, rope: RotaryTable, kv_cache: HeadKVCache
) -> Tensor:
    """Attention of step k: to the true pairs up to k positions back, and to one output of each later step."""
    batch, length, _ = inputs.shape
    query = rope.apply_rope(attention.split_heads(attention.q_proj(inputs)))
    kv_cache.keys.append(rope.apply_rope(attention.split_heads(attention.k_proj(inputs))))
    kv_cache.values.append(attention.split_heads(attention.v_proj(inputs)))
    step = len(kv_cache.keys) - 1
    if step == 0:
        attended = F.scaled_dot_product_attention(query, kv_cache.keys[0], kv_cache.values[0], is_causal=True)
    else:
        keys, values = (
            torch.stack([shift_right(each[index], step - index) for index in range(1, step + 1)])
            for each in (kv_cache.keys, kv_cache.values)
        )
        attended = unrolled_attention(query, kv_cache.keys[0], kv_cache.values[0], keys, values)
    return attention.o_proj(attended.transpose(1, 2).reshape(batch, length, -1))


def shift_right(rows: Tensor, count: int) -> Tensor:
    """Shift rows by `count` positions along the length; the first row is repeated and carries no loss."""
    if count == 0:
        return rows
    return torch.cat((rows[..., :1, :].expand(*rows.shape[:-2], count, rows.shape[-1]), rows[..., :-count, :]), dim=-2)


class Eagle3Layer(nn.Module):
    """The layer of EAGLE-3: norms for embedding and feature, and attention over their concatenation."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=2)
        self.mlp = SwigluMLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Eagle3(nn.Module):
    """An EAGLE-3 head over three hidden states, with a reduced vocabulary and SafeAILab's tensor names."""

    d2t: Tensor
    t2d: Tensor
    hidden_state_scale: Tensor  # scales hidden states to size 1 in training; part of `fc` in exports

    def __init__(self, shape: ModelShape, draft_token_ids: Tensor) -> None:
        """`draft_token_ids` [Vd]: the ids of the target that the head can draft, ascending."""
        super().__init__()
        self.shape = replace(shape, layers=1)
        self.fc = nn.Linear(3 * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = Eagle3Layer(self.shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, len(draft_token_ids), bias=False)
        is_in_draft = torch.zeros(shape.vocab_size, dtype=torch.bool)
        is_in_draft[draft_token_ids] = True
        self.register_buffer("d2t", draft_token_ids - torch.arange(len(draft_token_ids)))
        self.register_buffer("t2d", is_in_draft)
        self.register_buffer("hidden_state_scale", torch.ones(3 * shape.hidden_size), persistent=False)
        nn.init.zeros_(self.midlayer.mlp.down_proj.weight)

    @property
    def draft_token_ids(self) -> Tensor:
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def unroll(self, hidden_states: Tensor, embedded: Tensor, step_count: int) -> Iterator[HeadOutput]:
        """hidden_states [B, L, 3D] of tokens 0.., embedded [B, L, D] of tokens 1.. -> one output per step."""
        hidden = self.fc(hidden_states * self.hidden_state_scale)
        rope = rotary_table(hidden.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        kv_cache = HeadKVCache([], [])
        layer = self.midlayer
        for _ in range(step_count):
            fused = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(hidden)), dim=-1)
            feature = hidden + training_time_test_attention(layer.self_attn, fused, rope, kv_cache)
            feature = feature + layer.mlp(layer.post_attention_layernorm(feature))
            yield HeadOutput(feature, self.norm(feature))
            hidden = shift_right(feature, 1)


class Eagle1Layer(nn.Module):
    """A Llama layer without the norm before attention."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=1)
        self.mlp = SwigluMLP(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Eagle1(nn.Module):
    """EAGLE-1 (arXiv 2401.15077; EAGLE-2 has the same weights), with SafeAILab's tensor names.

    Its output predicts the target's next hidden state after the final norm, so the target's output matrix scores it.
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
        """hidden [B, L, D] after the target's final norm, embedded [B, L, D] of the next tokens."""
        rope = rotary_table(hidden.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        kv_cache = HeadKVCache([], [])
        layer = self.layer
        for _ in range(step_count):
            fused = self.fc(torch.cat((embedded, hidden), dim=-1))
            feature = fused + training_time_test_attention(layer.self_attn, fused, rope, kv_cache)
            feature = feature + layer.mlp(layer.post_attention_layernorm(feature))
            yield HeadOutput(feature, feature)
            hidden = shift_right(feature, 1)


class MtpBlock(nn.Module):
    """A multi-token prediction block with DeepSeek-V3's tensor names; its normed output is the next input."""

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
        """hidden [B, L, D] after the target's final norm, embedded [B, L, D] of the next tokens."""
        rope = rotary_table(hidden.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        kv_cache = HeadKVCache([], [])
        for _ in range(step_count):
            fused = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), dim=-1))
            feature = fused + training_time_test_attention(
                self.layer.self_attn, self.layer.input_layernorm(fused), rope, kv_cache
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
    """Residual blocks, one per position ahead, before the target's output matrix: keys `{k}.0.linear.*`."""

    def __init__(self, width: int, count: int = 4) -> None:
        super().__init__(nn.ModuleList([ResidualBlock(width)]) for _ in range(count))

    def forward(self, hidden: Tensor) -> list[Tensor]:
        """hidden [..., D] after the final norm -> one [..., D] for each of the tokens t+2, t+3, ..."""
        return [block(hidden) for block in self.blocks()]

    def blocks(self) -> list[ResidualBlock]:
        return [cast("ResidualBlock", cast("nn.ModuleList", head)[0]) for head in self]
