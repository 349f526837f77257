"""The initial fusion layer of an EAGLE head: a least-squares fit of the target's next hidden states."""

import torch
from torch import Tensor

from specchat_train.trainable_llama import Attention

RIDGE = 1e-4  # regularization of the fit, as a share of the mean square


@torch.no_grad()
def fit_fusion(fusion: Tensor, attention: Attention, inputs: Tensor, states: Tensor) -> None:
    """Fit the fusion layer to the next hidden states, and set the output of attention to zero.

    inputs [N, I], states [N, D]: `fusion` [D, I] becomes the least-squares map from inputs to states.
    """
    square = inputs.T @ inputs
    square.diagonal().add_(RIDGE * square.diagonal().mean())
    fusion.copy_(torch.linalg.solve(square, inputs.T @ states).T)
    attention.o_proj.weight.zero_()
