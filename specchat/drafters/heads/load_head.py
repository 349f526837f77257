"""Loads the network of a head for its target."""

import torch

from specchat.devices import FLOAT_FORMAT
from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.spec import HeadSpec, TargetDimensions, mismatches
from specchat.engine.model import Model
from specchat.errors import ModelError
from specchat.weights.tensor_files import WeightLoader


def load_head(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device, weights: str = FLOAT_FORMAT
) -> DraftHead:
    """The network of a head for its target; ModelError when the head does not fit the target.

    `dtype` None: the dtype of the target, whose hidden states, embeddings and LM head it uses. `weights` is the format
    of its linear layers, one of QUANT_FORMATS.
    """
    hidden_size = target.embed(torch.zeros(1, dtype=torch.long, device=device)).shape[-1]
    dimensions = TargetDimensions(hidden_size, target.layer_count or None, target.vocab_size)
    if reasons := mismatches(spec, dimensions):
        raise ModelError(f"{spec.source}: this {spec.format} head does not fit the target: {'; '.join(reasons)}")
    loader = WeightLoader(spec.tensors, dtype or target.pool.layout.dtype, device, weights)
    assert spec.network is not None, "a head without a network is not supported, and does not fit"
    return spec.network(spec, loader, target)
