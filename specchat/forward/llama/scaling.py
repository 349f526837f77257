"""The numbers that a family of networks multiplies with, those that it caps scores and logits at, and its activation.

Llama has none of them, so the defaults change nothing. Imports no torch, because tables of families hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SwiGluClamp:
    """The SwiGLU of gpt-oss: g * sigmoid(alpha * g) * (1 + u), with g <= limit and u between -limit and limit."""

    alpha: float
    limit: float


SILU, GELU_TANH = "silu", "gelu_pytorch_tanh"  # as in published configs
Activation = Literal["silu", "gelu_pytorch_tanh"] | SwiGluClamp  # of the gate of an MLP


@dataclass(frozen=True)
class Scaling:
    norms_add_one: bool = False  # norms multiply with 1 + weight
    embeddings: float = 1.0
    attention: float | None = None  # of the products of queries and keys; None: head_size**-0.5
    attention_cap: float | None = None  # scores become cap * tanh(score / cap)
    residual: float = 1.0  # of the output of attention and MLP
    logits: float = 1.0
    logit_cap: float | None = None
