"""The network: Llama as transformers has it, tensor by tensor, in a form that is quick to train.

Names and arithmetic are those of `LlamaForCausalLM`, so the state dict is the checkpoint. What differs is
only what training needs: hidden states after any layer, and logits for the rows that carry loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXITS = (3, 4, 6)  # layers after which the network learns to speak for all of them (LayerSkip)


@dataclass(frozen=True)
class Shape:
    """The size of a network; `inputs` above 1 widens what the first projections read (EAGLE)."""

    layers: int = 12
    width: int = 256
    heads: int = 4
    head_width: int = 64
    inner: int = 512
    vocabulary: int = 8192
    context: int = 4096
    theta: float = 1e8
    epsilon: float = 1e-6

    @property
    def exits(self) -> tuple[int, ...]:
        """Layers after which this network learns to speak."""
        return tuple(layer for layer in EXITS if layer < self.layers)

    def config(self) -> dict[str, Any]:
        """What `config.json` says, read by transformers."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.head_width,
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.epsilon,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta},
            "rope_theta": self.theta,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "early_exit_layers": list(self.exits),
            "bos_token_id": None,
            "eos_token_id": 0,
            "pad_token_id": 5,
            "dtype": "bfloat16",
            "torch_dtype": "bfloat16",
        }


class Norm(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        full = hidden.float()
        full = full * torch.rsqrt(full.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (self.weight * full).to(hidden.dtype)


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of the positions of a row, each [L, head_width]."""

    cosine: Tensor
    sine: Tensor

    def turn(self, heads: Tensor) -> Tensor:
        first, second = heads.chunk(2, dim=-1)
        return heads * self.cosine + torch.cat((-second, first), dim=-1) * self.sine


def rotation(length: int, head_width: int, theta: float, like: Tensor) -> Rotation:
    """The rotary table for positions 0..length-1."""
    powers = torch.arange(0, head_width, 2, device=like.device, dtype=torch.float32) / head_width
    angles = torch.arange(length, device=like.device, dtype=torch.float32)[:, None] / theta**powers
    angles = torch.cat((angles, angles), dim=-1)
    return Rotation(angles.cos().to(like.dtype), angles.sin().to(like.dtype))


class Attention(nn.Module):
    def __init__(self, shape: Shape, inputs: int) -> None:
        super().__init__()
        self.heads, self.head_width = shape.heads, shape.head_width
        inside = shape.heads * shape.head_width
        self.q_proj = nn.Linear(inputs * shape.width, inside, bias=False)
        self.k_proj = nn.Linear(inputs * shape.width, inside, bias=False)
        self.v_proj = nn.Linear(inputs * shape.width, inside, bias=False)
        self.o_proj = nn.Linear(inside, shape.width, bias=False)

    def split(self, projected: Tensor) -> Tensor:
        batch, length, _ = projected.shape
        return projected.view(batch, length, self.heads, self.head_width).transpose(1, 2)

    def forward(self, hidden: Tensor, turns: Rotation) -> Tensor:
        batch, length, _ = hidden.shape
        query = turns.turn(self.split(self.q_proj(hidden)))
        key = turns.turn(self.split(self.k_proj(hidden)))
        value = self.split(self.v_proj(hidden))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class Layer(nn.Module):
    def __init__(self, shape: Shape, inputs: int = 1) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs)
        self.mlp = FeedForward(shape)
        self.input_layernorm = Norm(shape.width, shape.epsilon)
        self.post_attention_layernorm = Norm(shape.width, shape.epsilon)

    def forward(self, hidden: Tensor, turns: Rotation) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), turns)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Trunk(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width, shape.epsilon)


class Network(nn.Module):
    """The whole network; its state dict holds the names that transformers expects, output matrix tied."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """tokens [B, L] -> the residual stream before layer 0, after layer 0, ... after the last: [B, L, D] each."""
        hidden = self.model.embed_tokens(tokens)
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        turns = rotation(tokens.shape[1], self.shape.head_width, self.shape.theta, hidden)
        stream = [hidden]
        for layer in self.model.layers:
            stream.append(layer(stream[-1], turns))
        return stream

    def attention(self, layer: int) -> Attention:
        return cast("Layer", self.model.layers[layer]).self_attn

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden rows [..., D] -> scores over the vocabulary [..., V]."""
        return F.linear(self.model.norm(hidden), self.model.embed_tokens.weight)


def parameters_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
