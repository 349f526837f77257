"""The weights with which the training of an EAGLE-3 head begins: a linear fit of the target's next state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat_train.eagle_initialization import fit_fusion
from specchat_train.trainable_heads import Eagle3
from specchat_train.trainable_llama import ModelShape

MAX_INIT_NORM = 3.0  # of scaled states in the fit; the first tokens of a text have much larger ones


def fitted_eagle3(
    shape: ModelShape, ids: Tensor, states: Sequence[Tensor], norm_weight: Tensor, embedding: Tensor
) -> Eagle3:
    """A head that begins with the embeddings as LM head, and the fit of the next states. states [L, 4 * D] of texts"""
    eagle, width = Eagle3(shape, ids), 3 * shape.hidden_size
    inputs = torch.cat([part[:-1, :width] for part in states])
    outputs = torch.cat([part[1:, width:] for part in states]) / norm_weight
    sizes = inputs.unflatten(-1, (3, -1)).pow(2).mean(-1).sqrt()
    median = sizes.median(0).values
    is_usual = (sizes / median).amax(-1) < MAX_INIT_NORM
    with torch.no_grad():
        scale = (1.0 / median).bfloat16().float()  # a copy of the head in bfloat16 has the same
        eagle.hidden_state_scale.copy_(scale.repeat_interleave(shape.hidden_size))
        scaled = inputs[is_usual] * eagle.hidden_state_scale
        fit_fusion(eagle.fc.weight, eagle.midlayer.self_attn, scaled, outputs[is_usual])
        eagle.lm_head.weight.copy_(embedding[ids])
        eagle.norm.weight.copy_(norm_weight)
    return eagle
