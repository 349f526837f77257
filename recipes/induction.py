"""Initial weights with an induction circuit, so that a new network can copy from its context.

A small network needs millions of tokens to learn how to continue a text that it has seen before. The circuit is known:
previous-token heads, then induction heads that find the earlier position of the same tokens and copy what followed. It
is written into the first layers. The output matrices of all other heads and of all MLPs start at zero.

At the start, the residual stream has three parts: 4 constant columns (so that a head can attend to a fixed distance),
one half for the token itself, and one half for the previous tokens. Training may mix these parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat_train.trainable_llama import Attention, ModelShape, TrainableLlama

CONSTANTS = 4
EMBEDDING_SCALE = 1.0
FINAL_SCALE = 0.1  # the output matrix is the embedding, so the last norm makes its scores small
FAST_PAIRS = 8  # rotary pairs that tell one token of distance from two
FIRST_SLOW_PAIR = 13  # from here on a thousand tokens turn a pair by less than half a radian
POSITION_STRENGTH = 8.0
MATCH_STRENGTH = 2.5
COPY_STRENGTH = 5.0
FUSION_SCALE = 0.2  # what EAGLE's layer brings must outweigh the tap that it reads


@dataclass(frozen=True)
class ResidualLayout:
    """Which columns of the residual stream mean what at the start."""

    shape: ModelShape

    @property
    def token(self) -> slice:
        return slice(CONSTANTS, CONSTANTS + (self.shape.hidden_size - CONSTANTS) // 2)

    @property
    def code_width(self) -> int:
        """How many columns keep one earlier token."""
        return (self.shape.hidden_size - self.token.stop) // self.shape.num_heads

    def earlier(self, head: int) -> slice:
        start = self.token.stop + head * self.code_width
        return slice(start, start + self.code_width)


@torch.no_grad()
def initialize_copy_circuit(network: TrainableLlama, seed: int) -> None:
    """Fill a fresh network: random, silent, and with the copying circuit in layers 0 and 2."""
    generator = torch.Generator().manual_seed(seed)
    fill_at_random(network, generator)
    shape = network.shape
    parts = ResidualLayout(shape)
    embedding = network.model.embed_tokens.weight
    embedding.mul_(0.05)
    embedding[:, parts.token].div_(0.05)
    embedding[:, :CONSTANTS] = EMBEDDING_SCALE
    code = orthonormal(parts.code_width, parts.token.stop - parts.token.start, generator)
    write_previous_token_head(network.attention(0), parts, code)
    for index in matching_layers(shape):
        write_induction_head(network.attention(index), parts, code, generator)


def matching_layers(shape: ModelShape) -> list[int]:
    return [1] if shape.layers < 6 else [2]


def is_circuit_weight(name: str, shape: ModelShape) -> bool:
    """Whether a weight belongs to the circuit; such weights must move gently at first or the circuit breaks."""
    return any(f"layers.{index}.self_attn." in name for index in (0, *matching_layers(shape)))


def fill_at_random(network: TrainableLlama, generator: torch.Generator) -> None:
    for name, parameter in network.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            parameter.zero_()
        elif "embed_tokens" in name:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * EMBEDDING_SCALE)
        elif name == "model.norm.weight":
            parameter.fill_(FINAL_SCALE)
        elif parameter.ndim == 2:
            bound = parameter.shape[1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * bound)


def write_previous_token_head(attention: Attention, parts: ResidualLayout, code: Tensor) -> None:
    """Head h looks h+1 tokens back; the last head averages over the last few tokens instead."""
    width = attention.head_dim
    frequencies = parts.shape.rope_theta ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    scale = root_mean_square(parts, with_earlier=False)
    query, key = attention.q_proj.weight, attention.k_proj.weight
    value, output = attention.v_proj.weight, attention.o_proj.weight
    for head in range(attention.num_heads):
        is_average = head == attention.num_heads - 1
        distance = 3.0 if is_average else head + 1.0
        strength = POSITION_STRENGTH * (0.35 if is_average else 1.0)
        rows = slice(head * width, (head + 1) * width)
        query[rows], key[rows] = 0.0, 0.0
        for pair in range(FAST_PAIRS):
            turn = distance * float(frequencies[pair])
            unit = strength * scale / CONSTANTS
            query[rows.start + pair, :CONSTANTS] = unit * math.cos(turn)
            query[rows.start + width // 2 + pair, :CONSTANTS] = -unit * math.sin(turn)
            key[rows.start + pair, :CONSTANTS] = unit
        value[rows.start : rows.start + parts.code_width] = 0.0
        value[rows.start : rows.start + parts.code_width, parts.token] = code
        boost = 2.0 if is_average else 1.0
        for column in range(parts.code_width):
            output[parts.earlier(head).start + column, rows.start + column] = boost * scale * EMBEDDING_SCALE


def write_induction_head(attention: Attention, parts: ResidualLayout, code: Tensor, generator: torch.Generator) -> None:
    """Look for the place that followed the same tokens, and bring its token here.

    The query holds [this token, 1 back, 2 back], the key [1 back, 2 back, 3 back]: equal where the text repeats.
    The last head compares the average of the last tokens instead, which still fits after a replaced name.
    """
    width, half = attention.head_dim, attention.head_dim // 2
    slow = list(range(FIRST_SLOW_PAIR, half))
    rooms = slow + [pair + half for pair in slow]
    scale = root_mean_square(parts, with_earlier=True)
    query, key = attention.q_proj.weight, attention.k_proj.weight
    value, output = attention.v_proj.weight, attention.o_proj.weight
    token_columns = range(parts.token.start, parts.token.stop)
    last = attention.num_heads - 1
    for head in range(attention.num_heads):
        rows = slice(head * width, (head + 1) * width)
        query[rows], key[rows] = 0.0, 0.0
        shares = split_matching_columns(len(rooms), head, last)
        taken = 0
        for share, source in shares:
            mix = orthonormal(share, parts.code_width, generator) * MATCH_STRENGTH * scale
            for index in range(share):
                room = rows.start + rooms[taken + index]
                if source == last:
                    query[room, parts.earlier(last)] = mix[index]
                    key[room, parts.earlier(last)] = mix[index]
                elif source == 0:
                    query[room, parts.token] = mix[index] @ code
                    key[room, parts.earlier(0)] = mix[index]
                else:
                    query[room, parts.earlier(source - 1)] = mix[index]
                    key[room, parts.earlier(source)] = mix[index]
            taken += share
        value[rows] = 0.0
        for index in range(width):
            column = token_columns[(head * width + index) % len(token_columns)]
            value[rows.start + index, column] = 1.0
            output[column, rows.start + index] = (
                COPY_STRENGTH * scale * EMBEDDING_SCALE * len(token_columns) / (attention.num_heads * width)
            )


@torch.no_grad()
def initialize_eagle3(fusion: Tensor, attention: Attention, shape: ModelShape, seed: int) -> None:
    """EAGLE's layer begins as the same circuit: find where the coming token stood, bring the one after it.

    The first tap still knows which token its place holds, so `fusion` [D, 3D] passes that tap on. The query reads the
    coming token from the embedding half of the input, the key reads its own token from the feature half.
    """
    generator = torch.Generator().manual_seed(seed)
    parts, width, half = ResidualLayout(shape), attention.head_dim, attention.head_dim // 2
    fusion.zero_()
    fusion[:, : shape.hidden_size] = torch.eye(shape.hidden_size) * FUSION_SCALE
    rooms = [place for pair in range(FIRST_SLOW_PAIR, half) for place in (pair, pair + half)]
    token_width = parts.token.stop - parts.token.start
    query, key = attention.q_proj.weight, attention.k_proj.weight
    value, output = attention.v_proj.weight, attention.o_proj.weight
    for weight in (query, key, value, output):
        weight.zero_()
    for head in range(attention.num_heads):
        mix = orthonormal(min(len(rooms), token_width), token_width, generator) * MATCH_STRENGTH
        for room, line in zip(rooms, mix, strict=False):
            query[head * width + room, parts.token] = line
            key[head * width + room, shape.hidden_size + parts.token.start : shape.hidden_size + parts.token.stop] = (
                line
            )
    for column in range(min(shape.hidden_size, value.shape[0])):
        value[column, column] = 1.0
        output[column, column] = COPY_STRENGTH


def split_matching_columns(rooms: int, head: int, last: int) -> list[tuple[int, int]]:
    """How a head shares its matching columns: (columns, how many tokens back), `last` meaning the average."""
    if head == last:
        return [(rooms // 3, 0), (min(rooms - rooms // 3, 31), last)]
    if last < 3:
        return [(rooms - rooms // 3, 0), (rooms // 3, 1)]
    return [(rooms - 2 * (rooms // 3), 0), (rooms // 3, 1), (rooms // 3, 2)]


def root_mean_square(parts: ResidualLayout, *, with_earlier: bool) -> float:
    """How large a row is after the embedding or after layer 0, in units of one token column."""
    filled = parts.shape.hidden_size if with_earlier else parts.token.stop
    return math.sqrt(filled / parts.shape.hidden_size)


def orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    square = torch.randn(columns, columns, generator=generator)
    return torch.linalg.qr(square).Q[:rows]
