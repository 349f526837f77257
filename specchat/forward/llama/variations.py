"""What a family of networks varies: the numbers that it multiplies with or caps at, its activation, shapes of layers.

Llama has none of the numbers, so the defaults change nothing. Imports no torch, because tables of families hold them.
"""

from dataclasses import dataclass
from typing import Literal

OTHER_NETWORK = -1  # as `kv_source`: a layer of another network, as of the target of an assistant


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


@dataclass(frozen=True)
class LayerShape:
    """What the layers of one network may differ in."""

    kv_heads: int
    head_size: int
    intermediate_size: int
    kv_source: int | None = None  # the earlier layer whose keys and values it reads; None: it computes its own
    has_values: bool = True  # False: its keys are the values too, before their norm and rotation
    normalizes_values: bool = False  # by an RMS norm without a weight
