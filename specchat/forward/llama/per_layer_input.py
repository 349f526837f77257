"""Per-layer embeddings: every decoder layer of Gemma 3n and Gemma 4 reads a small vector of its own for each token.

The vector is the sum of a row of a second embedding, which the token alone decides, and of a projection of the input
embedding. The rows of the second embedding travel behind those of the first, so that a CUDA graph has one input and the
table may stay on the CPU. Knows tensors; knows no file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.forward.fused_ops import TorchOps
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.scaling import GELU_TANH


@dataclass(frozen=True)
class PerLayerInput:
    """The vectors of all layers, from the embeddings of a token. P is the size of a vector, L the number of layers."""

    embedding: Tensor  # [V, L * P]; may be on the CPU while everything else is on a GPU
    projection: Linear  # D -> L * P
    norm: Tensor  # [P]

    def embed(self, tokens: Tensor, device: torch.device) -> Tensor:
        """Rows of the second embedding, scaled. [N] -> [N, L * P]"""
        rows = self.embedding[tokens.to(self.embedding.device)].to(device, non_blocking=True)
        return rows * torch.tensor(len(self.norm) ** 0.5).to(rows.dtype)  # rounded, as transformers does

    def split(self, rows: Tensor, ops: TorchOps) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The input embeddings [N, D] and the vectors of each layer [N, P], from rows of both embeddings."""
        embedded, rows = (each.contiguous() for each in rows.tensor_split((-self.embedding.shape[1],), dim=-1))
        projected = (self.projection(embedded) * embedded.shape[-1] ** -0.5).view(len(rows), -1, len(self.norm))
        vectors = (ops.rms_norm(projected, self.norm) + rows.view(projected.shape)) * 2**-0.5
        return embedded, vectors.unbind(1)


@dataclass(frozen=True)
class PerLayerGate:
    """What a layer does with its vectors: norm(project(gelu(gate(x)) * vector)), for the residual connection."""

    gate: Linear  # D -> P
    projection: Linear  # P -> D
    norm: Tensor  # [D]

    def __call__(self, hidden_states: Tensor, vectors: Tensor, ops: TorchOps) -> Tensor:
        gated = ops.activate_and_mul(torch.cat((self.gate(hidden_states), vectors), dim=-1), GELU_TANH)
        return ops.rms_norm(self.projection(gated), self.norm)
