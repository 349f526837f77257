"""The table of what can be trained: each kind of head, and a small draft model.

A kind defines the hidden states it reads, its initial weights, its loss and its export. A new head starts with the
target's output matrix and final norm, and with hidden states scaled to one size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from specchat.drafters.heads.detect import inspect_head
from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError, UsageError
from specchat.forward.llama.rope import Rope
from specchat_train import export_weights, load_trained
from specchat_train.distillation_batches import TargetMatrices, TrainingData
from specchat_train.distillation_losses import (
    StudentLoss,
    draft_loss,
    draft_vocabulary,
    eagle1_loss,
    eagle3_loss,
    medusa_loss,
    mtp_loss,
)
from specchat_train.draft_models import export_draft_model, is_draft_model, new_draft_model
from specchat_train.eagle_initialization import fit_fusion
from specchat_train.frozen_target import FrozenTarget, read_config
from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat_train.trainable_llama import ModelShape

MAX_DRAFT_VOCABULARY = 32_000  # of EAGLE-3; at most half of the target's
MIN_DRAFT_VOCABULARY = 4096  # fewer different tokens in the answers say little about other answers
MIN_EAGLE3_LAYERS = 5  # with fewer, its three hidden states are not distinct
INIT_SAMPLE_ANSWERS = 32  # whose hidden states initialize a head


@dataclass(frozen=True)
class HeadInitInputs:
    shape: ModelShape
    target_matrices: TargetMatrices
    final_norm_weight: Tensor | None  # of the target, if known
    training_data: TrainingData
    stop_token_ids: frozenset[int]


@dataclass(frozen=True)
class HeadKind:
    hidden_state_layers: Callable[[int], tuple[int, ...]]  # number of target layers -> layers that it reads
    initialize: Callable[[HeadInitInputs], nn.Module]
    load: Callable[[Path, ModelShape], nn.Module]
    prepare_resumed: Callable[[nn.Module, HeadInitInputs], None]  # before a head is trained further
    loss: Callable[[Any, ModelShape], StudentLoss]
    export: Callable[[Any, FrozenTarget, Path], None]


def head_kind(name: str) -> HeadKind:
    """UsageError for a kind that cannot be trained."""
    if name not in HEAD_KINDS:
        raise UsageError(f"unknown kind of head {name!r}; known are {', '.join(HEAD_KINDS)}")
    return HEAD_KINDS[name]


def hidden_state_layers_of(name: str, layers: int) -> tuple[int, ...]:
    """The hidden states that a head of this kind reads. ModelError for a target with too few layers."""
    if name == "eagle3" and layers < MIN_EAGLE3_LAYERS:
        others = ", ".join(other for other in HEAD_KINDS if other not in (name, "draft"))
        raise ModelError(
            f"eagle3 needs a target of at least {MIN_EAGLE3_LAYERS} layers, and this one has {layers}; choose {others}"
        )
    return head_kind(name).hidden_state_layers(layers)


def load_head_for_training(name: str, folder: Path, target: ModelShape) -> nn.Module:
    """Load a head to train it further. ModelError for another kind or an unsupported format."""
    kind = "draft" if is_draft_model(folder) else inspect_head(folder).kind
    if kind != name:
        raise ModelError(f"{folder}: this is a head of kind {kind}, not {name}")
    try:
        head = head_kind(name).load(folder, shape_from_config(read_config(folder), target))
    except (KeyError, RuntimeError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{folder}: its format cannot be trained further: {reason}") from error
    return head.train().requires_grad_(True)


def shape_from_config(config: Mapping[str, Any], target: ModelShape) -> ModelShape:
    """The sizes in a head's config; missing ones are the target's, except for RoPE.

    The number of layers is always the target's, as it is part of the tensor names of MTP.
    """
    if config.get("num_key_value_heads") not in (None, config.get("num_attention_heads")):
        raise ModelError("a head with grouped-query attention cannot be trained further; train a new one")
    rope = Rope.from_config(config)
    if rope.rope_type != "default" or rope.partial_rotary_factor != 1.0:
        raise ModelError(f"a head with RoPE type {rope.rope_type} cannot be trained further; train a new one")
    heads = config.get("num_attention_heads") or target.num_heads
    return replace(
        target,
        num_heads=heads,
        head_dim=config.get("head_dim") or target.hidden_size // heads,
        intermediate_size=config.get("intermediate_size") or target.intermediate_size,
        max_positions=config.get("max_position_embeddings") or target.max_positions,
        rms_norm_eps=config.get("rms_norm_eps") or target.rms_norm_eps,
        rope_theta=rope.theta,
    )


def _new_eagle3(inputs: HeadInitInputs) -> Eagle3:
    shape, rows = inputs.shape, inputs.training_data.packed_rows
    answer_tokens = torch.from_numpy(rows.tokens[rows.weights > 0])
    used = max(len(answer_tokens.unique()), MIN_DRAFT_VOCABULARY)  # every other row costs time and learns nothing
    size = min(MAX_DRAFT_VOCABULARY, shape.vocab_size // 2, used)
    draft_ids = draft_vocabulary(answer_tokens, shape.vocab_size, size, inputs.stop_token_ids)
    eagle = Eagle3(shape, draft_ids)
    with torch.no_grad():
        eagle.lm_head.weight.copy_(inputs.target_matrices.lm_head_weight.cpu()[draft_ids])
        if inputs.final_norm_weight is not None:
            eagle.norm.weight.copy_(inputs.final_norm_weight)
    _set_input_scale(eagle, inputs)
    return eagle


@torch.no_grad()
def _set_input_scale(eagle: Eagle3, inputs: HeadInitInputs) -> None:
    """Scale the hidden states of each layer to size 1 during training."""
    layers = hidden_state_layers_of("eagle3", inputs.shape.layers)
    rms = [_sample_states(inputs, layer).pow(2).mean().sqrt().clamp(min=1e-6) for layer in layers]
    eagle.hidden_state_scale.copy_((1.0 / torch.stack(rms)).repeat_interleave(inputs.shape.hidden_size))


def _prepare_resumed_eagle3(head: nn.Module, inputs: HeadInitInputs) -> None:
    """Set the scale and divide the weights by it, so that the head computes the same as before."""
    eagle = cast("Eagle3", head)
    _set_input_scale(eagle, inputs)
    with torch.no_grad():
        eagle.fc.weight.div_(eagle.hidden_state_scale)


def _new_eagle1(inputs: HeadInitInputs) -> Eagle1:
    eagle = Eagle1(inputs.shape)
    states = _sample_states(inputs, FINAL_NORM)
    tokens = torch.from_numpy(inputs.training_data.packed_rows.tokens[: len(states)])
    embedded = inputs.target_matrices.embedding_weight.float().cpu()[tokens]
    pairs = torch.cat((embedded[1:], states[:-1]), dim=-1)
    fit_fusion(eagle.fc.weight, eagle.layer.self_attn, pairs, states[1:])
    return eagle


def _new_mtp(inputs: HeadInitInputs) -> MtpBlock:
    block = MtpBlock(inputs.shape)
    if inputs.final_norm_weight is not None:
        with torch.no_grad():
            block.norm.weight.copy_(inputs.final_norm_weight)
    return block


def _sample_states(inputs: HeadInitInputs, layer: int) -> Tensor:
    """The hidden states of the first answers at one layer. [n, D]"""
    cache = inputs.training_data.cache
    count = min(len(cache.answers), INIT_SAMPLE_ANSWERS)
    start = cache.hidden_state_layers.index(layer) * cache.hidden_size
    columns = slice(start, start + cache.hidden_size)
    return torch.cat([cache.hidden_states(index)[:, columns].float() for index in range(count)])


def _no_preparation(_head: nn.Module, _inputs: HeadInitInputs) -> None:
    """Do nothing."""


def _final_layer_only(_layers: int) -> tuple[int, ...]:
    return (FINAL_NORM,)


def _no_hidden_state_layers(_layers: int) -> tuple[int, ...]:
    return ()


HEAD_KINDS: Mapping[str, HeadKind] = {
    "eagle3": HeadKind(
        export_weights.eagle3_hidden_state_layers, _new_eagle3, load_trained.load_eagle3, _prepare_resumed_eagle3,
        lambda eagle, shape: eagle3_loss(eagle, export_weights.eagle3_hidden_state_layers(shape.layers)),
        lambda eagle, target, folder: export_weights.export_eagle3(eagle, target.shape, folder),
    ),
    "eagle": HeadKind(
        _final_layer_only, _new_eagle1, load_trained.load_eagle1, _no_preparation,
        lambda eagle, _shape: eagle1_loss(eagle),
        lambda eagle, _target, folder: export_weights.export_eagle1(eagle, folder),
    ),
    "medusa": HeadKind(
        _final_layer_only, lambda inputs: Medusa(inputs.shape.hidden_size), load_trained.load_medusa, _no_preparation,
        lambda medusa, _shape: medusa_loss(medusa),
        lambda medusa, target, folder: export_weights.export_medusa(medusa, target.shape, folder),
    ),
    "mtp": HeadKind(
        _final_layer_only, _new_mtp, load_trained.load_mtp, _no_preparation, lambda block, _shape: mtp_loss(block),
        lambda block, target, folder: export_weights.export_mtp(block, target.shape, folder),
    ),
    "draft": HeadKind(
        _no_hidden_state_layers,
        lambda inputs: new_draft_model(inputs.shape, inputs.target_matrices.embedding_weight),
        lambda folder, _shape: load_trained.load_llama(folder), _no_preparation,
        lambda draft, _shape: draft_loss(draft), export_draft_model,
    ),
}  # fmt: skip
