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

from specchat.train.trainable_llama import Attention, FeedForward, Layer, Norm, Rotation, Shape, rotation


@dataclass(frozen=True)
class Drafted:
    """One run over a row: what feeds the next run [B, L, D], and what predicts the token after next [B, L, D]."""

    feature: Tensor
    prediction: Tensor


@dataclass
class Past:
    """Keys and values of the runs so far, each [B, H, L, W]."""

    keys: list[Tensor]
    values: list[Tensor]


def attend_in_runs(attention: Attention, inputs: Tensor, turns: Rotation, past: Past) -> Tensor:
    """Attention of run k: true pairs up to k places back, then one entry from each later run, its own the last."""
    batch, length, _ = inputs.shape
    query = turns.turn(attention.split(attention.q_proj(inputs)))
    past.keys.append(turns.turn(attention.split(attention.k_proj(inputs))))
    past.values.append(attention.split(attention.v_proj(inputs)))
    run = len(past.keys) - 1
    if run == 0:
        mixed = F.scaled_dot_product_attention(query, past.keys[0], past.values[0], is_causal=True)
        return attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
    allowed = torch.ones(length, length, dtype=torch.bool, device=inputs.device).tril(-run)
    scale = 1.0 / math.sqrt(attention.head_width)
    true = (query @ past.keys[0].transpose(-1, -2)).float() * scale
    true = true.masked_fill(~allowed, float("-inf"))
    later = [
        ((query * shifted(past.keys[index], run - index)).sum(-1, keepdim=True).float() * scale)
        for index in range(1, run + 1)
    ]
    shares = torch.cat([true, *later], dim=-1).softmax(-1).to(query.dtype)
    mixed = shares[..., :length] @ past.values[0]
    for place, index in enumerate(range(1, run + 1)):
        mixed = mixed + shares[..., length + place : length + place + 1] * shifted(past.values[index], run - index)
    return attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


def shifted(rows: Tensor, count: int) -> Tensor:
    """Rows moved `count` places to the right along the length; the first ones repeat and carry no loss."""
    if count == 0:
        return rows
    return torch.cat((rows[..., :1, :].expand(*rows.shape[:-2], count, rows.shape[-1]), rows[..., :-count, :]), dim=-2)


class EagleBlock(nn.Module):
    """The one layer of EAGLE-3: norms for embedding and feature, attention over both side by side."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=2)
        self.mlp = FeedForward(shape)
        self.input_layernorm = Norm(shape.width, shape.epsilon)
        self.hidden_norm = Norm(shape.width, shape.epsilon)
        self.post_attention_layernorm = Norm(shape.width, shape.epsilon)


class Eagle(nn.Module):
    """An EAGLE-3 head with three taps and a reduced vocabulary, in the names that SafeAILab publishes."""

    d2t: Tensor
    t2d: Tensor
    tap_scale: Tensor  # brings every tap to size one while training; part of `fc` in what ships

    def __init__(self, shape: Shape, kept: Tensor) -> None:
        """`kept` [Vd]: the ids of the target's vocabulary that the head can draft, ascending."""
        super().__init__()
        self.shape = replace(shape, layers=1)
        self.fc = nn.Linear(3 * shape.width, shape.width, bias=False)
        self.midlayer = EagleBlock(self.shape)
        self.norm = Norm(shape.width, shape.epsilon)
        self.lm_head = nn.Linear(shape.width, len(kept), bias=False)
        inside = torch.zeros(shape.vocabulary, dtype=torch.bool)
        inside[kept] = True
        self.register_buffer("d2t", kept - torch.arange(len(kept)))
        self.register_buffer("t2d", inside)
        self.register_buffer("tap_scale", torch.ones(3 * shape.width), persistent=False)
        nn.init.zeros_(self.midlayer.mlp.down_proj.weight)

    @property
    def kept(self) -> Tensor:
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def runs(self, taps: Tensor, embedded: Tensor, count: int) -> Iterator[Drafted]:
        """taps [B, L, 3D] of tokens 0.., embedded [B, L, D] of tokens 1.. -> `count` runs over the row."""
        hidden = self.fc(taps * self.tap_scale)
        turns = rotation(hidden.shape[1], self.shape.head_width, self.shape.theta, hidden)
        past = Past([], [])
        block = self.midlayer
        for _ in range(count):
            fused = torch.cat((block.input_layernorm(embedded), block.hidden_norm(hidden)), dim=-1)
            feature = hidden + attend_in_runs(block.self_attn, fused, turns, past)
            feature = feature + block.mlp(block.post_attention_layernorm(feature))
            yield Drafted(feature, self.norm(feature))
            hidden = shifted(feature, 1)


class FirstLayer(nn.Module):
    """A Llama layer without the norm in front of its attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs=1)
        self.mlp = FeedForward(shape)
        self.post_attention_layernorm = Norm(shape.width, shape.epsilon)


class FirstEagle(nn.Module):
    """The first EAGLE (arXiv 2401.15077; EAGLE-2 has the same weights), in the names that SafeAILab publishes.

    What it makes is meant to be the target's next state after the final norm, so the target's output matrix reads it.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = replace(shape, layers=1)
        self.fc = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.layers = nn.ModuleList([FirstLayer(self.shape)])
        nn.init.zeros_(self.layer.mlp.down_proj.weight)

    @property
    def layer(self) -> FirstLayer:
        return cast("FirstLayer", self.layers[0])

    def runs(self, hidden: Tensor, embedded: Tensor, count: int) -> Iterator[Drafted]:
        """hidden [B, L, D] after the target's final norm, embedded [B, L, D] of the tokens after."""
        turns = rotation(hidden.shape[1], self.shape.head_width, self.shape.theta, hidden)
        past = Past([], [])
        layer = self.layer
        for _ in range(count):
            fused = self.fc(torch.cat((embedded, hidden), dim=-1))
            feature = fused + attend_in_runs(layer.self_attn, fused, turns, past)
            feature = feature + layer.mlp(layer.post_attention_layernorm(feature))
            yield Drafted(feature, feature)
            hidden = shifted(feature, 1)


class MultiToken(nn.Module):
    """A block for multi-token prediction, in the names of DeepSeek-V3; fed back after its norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.enorm = Norm(shape.width, shape.epsilon)
        self.hnorm = Norm(shape.width, shape.epsilon)
        self.eh_proj = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.layer = Layer(shape)
        self.norm = Norm(shape.width, shape.epsilon)
        nn.init.normal_(self.eh_proj.weight, std=0.3 * shape.width**-0.5)

    def runs(self, hidden: Tensor, embedded: Tensor, count: int) -> Iterator[Drafted]:
        """hidden [B, L, D] after the target's final norm, embedded [B, L, D] of the tokens after."""
        turns = rotation(hidden.shape[1], self.shape.head_width, self.shape.theta, hidden)
        past = Past([], [])
        for _ in range(count):
            fused = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), dim=-1))
            feature = fused + attend_in_runs(self.layer.self_attn, self.layer.input_layernorm(fused), turns, past)
            feature = self.norm(feature + self.layer.mlp(self.layer.post_attention_layernorm(feature)))
            yield Drafted(feature, feature)
            hidden = shifted(feature, 1)


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
