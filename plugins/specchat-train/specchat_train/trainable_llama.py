"""A trainable Llama with the tensor names and arithmetic of transformers' `LlamaForCausalLM`.

Its state dict is the checkpoint. It returns the hidden states of all layers, and computes logits only for the rows that
carry loss.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXIT_LAYERS = (3, 4, 6)  # early exits of the embedded target (LayerSkip, arXiv 2404.16710)


@dataclass(frozen=True)
class ModelShape:
    layers: int = 12
    hidden_size: int = 256
    num_heads: int = 4
    head_dim: int = 64
    intermediate_size: int = 512
    vocab_size: int = 8192
    max_positions: int = 4096
    rope_theta: float = 1e8
    rms_norm_eps: float = 1e-6

    @property
    def early_exit_layers(self) -> tuple[int, ...]:
        return tuple(layer for layer in EXIT_LAYERS if layer < self.layers)

    def to_config(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rope_theta": self.rope_theta,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "early_exit_layers": list(self.early_exit_layers),
            "bos_token_id": None,
            "eos_token_id": 0,
            "pad_token_id": 5,
            "dtype": "bfloat16",
            "torch_dtype": "bfloat16",
        }


class RMSNorm(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return F.rms_norm(hidden, self.weight.shape, self.weight.to(hidden.dtype), self.eps)


@dataclass(frozen=True)
class RotaryTable:
    """Cosines and sines of the positions of a row, each [L, head_dim]."""

    cosine: Tensor
    sine: Tensor

    def apply_rope(self, heads: Tensor) -> Tensor:
        first, second = heads.chunk(2, dim=-1)
        return heads * self.cosine + torch.cat((-second, first), dim=-1) * self.sine


def rotary_table(length: int, head_dim: int, theta: float, like: Tensor) -> RotaryTable:
    powers = torch.arange(0, head_dim, 2, device=like.device, dtype=torch.float32) / head_dim
    angles = torch.arange(length, device=like.device, dtype=torch.float32)[:, None] / theta**powers
    angles = torch.cat((angles, angles), dim=-1)
    return RotaryTable(angles.cos().to(like.dtype), angles.sin().to(like.dtype))


class Attention(nn.Module):
    def __init__(self, shape: ModelShape, inputs: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = shape.num_heads, shape.head_dim
        width = shape.num_heads * shape.head_dim
        self.q_proj = nn.Linear(inputs * shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(inputs * shape.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(inputs * shape.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def split_heads(self, projected: Tensor) -> Tensor:
        batch, length, _ = projected.shape
        return projected.view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, hidden: Tensor, rope: RotaryTable) -> Tensor:
        batch, length, _ = hidden.shape
        query = rope.apply_rope(self.split_heads(self.q_proj(hidden)))
        key = rope.apply_rope(self.split_heads(self.k_proj(hidden)))
        value = self.split_heads(self.v_proj(hidden))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).reshape(batch, length, -1))


class SwigluMLP(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class DecoderLayer(nn.Module):
    def __init__(self, shape: ModelShape, inputs: int = 1) -> None:
        super().__init__()
        self.self_attn = Attention(shape, inputs)
        self.mlp = SwigluMLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, hidden: Tensor, rope: RotaryTable) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rope)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class LlamaModel(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class TrainableLlama(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = LlamaModel(shape)

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """tokens [B, L] -> the hidden states before layer 0, after layer 0, ... after the last: [B, L, D] each."""
        hidden = self.model.embed_tokens(tokens)
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        rope = rotary_table(tokens.shape[1], self.shape.head_dim, self.shape.rope_theta, hidden)
        hidden_states = [hidden]
        for layer in self.model.layers:
            hidden_states.append(layer(hidden_states[-1], rope))
        return hidden_states

    def attention(self, layer: int) -> Attention:
        return cast("DecoderLayer", self.model.layers[layer]).self_attn

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden rows [..., D] -> logits [..., V]."""
        return F.linear(self.model.norm(hidden), self.model.embed_tokens.weight)
