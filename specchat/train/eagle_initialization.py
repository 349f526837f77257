"""The first weights of an EAGLE-1 head: a least-squares fit of the target's next hidden states."""

from __future__ import annotations

import torch
from torch import Tensor

from specchat.train.trainable_llama import Attention

RIDGE = 1e-4  # keeps the least squares of the EAGLE-1 fit solvable, as a share of the mean square


@torch.no_grad()
def initialize_eagle1(fusion: Tensor, attention: Attention, pairs: Tensor, states: Tensor) -> None:
    """The first EAGLE begins with the best guess that needs no attention, which is silent at first.

    pairs [N, 2D], states [N, D]: `fusion` [D, 2D] becomes the linear map that comes nearest to the target's next states.
    """
    square = pairs.T @ pairs
    square.diagonal().add_(RIDGE * square.diagonal().mean())
    fusion.copy_(torch.linalg.solve(square, pairs.T @ states).T)
    attention.o_proj.weight.zero_()
