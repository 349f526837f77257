"""The initial weights of an EAGLE-1 head: a least-squares fit of the target's next hidden states."""

import torch
from torch import Tensor

from specchat.train.trainable_llama import Attention

RIDGE = 1e-4  # regularization of the fit, as a share of the mean square


@torch.no_grad()
def initialize_eagle1(fusion: Tensor, attention: Attention, pairs: Tensor, states: Tensor) -> None:
    """Fit the fusion layer to the next hidden states, and set the output of attention to zero.

    pairs [N, 2D], states [N, D]: `fusion` [D, 2D] becomes the least-squares map from pairs to states.
    """
    square = pairs.T @ pairs
    square.diagonal().add_(RIDGE * square.diagonal().mean())
    fusion.copy_(torch.linalg.solve(square, pairs.T @ states).T)
    attention.o_proj.weight.zero_()
