"""What differs between the kinds of heads, and a small draft beside them: what they read, how one begins, what its loss is, how it is published.

A new head begins where that needs no luck: with the target's own output matrix and norm, and with taps brought to one
size. A head that goes on is read from a folder in the form in which we publish it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError, UsageError
from specchat.forward.rope import Rope
from specchat.heads.detect import inspect_head
from specchat.train import export_weights
from specchat.train import load_trained as read_weights
from specchat.train.distillation_batches import TargetMatrices, TrainingData
from specchat.train.distillation_losses import (
    StudentLoss,
    draft_loss,
    draft_vocabulary,
    eagle1_loss,
    eagle3_loss,
    medusa_loss,
    mtp_loss,
)
from specchat.train.draft_models import export_draft_model, is_draft_model, new_draft_model
from specchat.train.eagle_initialization import initialize_eagle1
from specchat.train.frozen_target import FrozenTarget, read_config
from specchat.train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat.train.trainable_llama import ModelShape

MAX_DRAFT_VOCABULARY = 32_000  # tokens of EAGLE-3's own vocabulary; half of the target's where that is less
MIN_EAGLE3_LAYERS = 5  # for EAGLE-3's three taps to be three places
INIT_SAMPLE_BATCHES = 4  # that a head begins with


@dataclass(frozen=True)
class HeadInitInputs:
    """What a new head grows from."""

    shape: ModelShape
    target_matrices: TargetMatrices
    final_norm_weight: Tensor | None  # weight of the target's last norm, where it is known
    training_data: TrainingData
    stop_token_ids: frozenset[int]  # tokens that end an answer


@dataclass(frozen=True)
class HeadKind:
    """One kind of head."""

    hidden_state_layers: Callable[[int], tuple[int, ...]]  # the states it reads of a target of so many layers
    initialize: Callable[[HeadInitInputs], nn.Module]
    load: Callable[[Path, ModelShape], nn.Module]
    prepare_resumed: Callable[[nn.Module, HeadInitInputs], None]  # what a head that goes on still needs
    loss: Callable[[Any, ModelShape], StudentLoss]
    export: Callable[[Any, FrozenTarget, Path], None]


def head_kind(name: str) -> HeadKind:
    """UsageError for a kind that cannot be trained."""
    if name not in HEAD_KINDS:
        raise UsageError(f"unknown kind of head {name!r}; known are {', '.join(HEAD_KINDS)}")
    return HEAD_KINDS[name]


def hidden_state_layers_of(name: str, layers: int) -> tuple[int, ...]:
    """The states that a head of this kind reads. ModelError for a target that is too shallow for it."""
    if name == "eagle3" and layers < MIN_EAGLE3_LAYERS:
        others = ", ".join(other for other in HEAD_KINDS if other not in (name, "draft"))
        raise ModelError(f"eagle3 reads three depths of a target, and this one has {layers} layers; take {others}")
    return head_kind(name).hidden_state_layers(layers)


def load_head_for_training(name: str, folder: Path, target: ModelShape) -> nn.Module:
    """A head of this kind out of its folder, to be trained further. ModelError where ours has no place for it."""
    found = "draft" if is_draft_model(folder) else inspect_head(folder).kind
    if found != name:
        raise ModelError(f"{folder}: this is a head of kind {found}, not {name}")
    try:
        head = head_kind(name).load(folder, shape_from_config(read_config(folder), target))
    except (KeyError, RuntimeError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{folder}: it is not saved in a form that can be trained further: {reason}") from error
    return head.train().requires_grad_(True)


def shape_from_config(config: Mapping[str, Any], target: ModelShape) -> ModelShape:
    """The sizes of a head as its config has them; those it does not name are the target's, but for what turns it.

    The depth is always the target's: MTP is named after it.
    """
    if config.get("num_key_value_heads") not in (None, config.get("num_attention_heads")):
        raise ModelError("a head whose queries share keys cannot be trained further; train a new one")
    rope = Rope.from_config(config)
    if rope.rope_type != "default" or rope.partial_rotary_factor != 1.0:
        raise ModelError(f"a head that is turned as {rope.rope_type} cannot be trained further; train a new one")
    heads = config.get("num_attention_heads") or target.num_heads
    return replace(
        target,
        heads=heads,
        head_width=config.get("head_dim") or target.hidden_size // heads,
        inner=config.get("intermediate_size") or target.intermediate_size,
        context=config.get("max_position_embeddings") or target.max_positions,
        epsilon=config.get("rms_norm_eps") or target.rms_norm_eps,
        theta=rope.theta,
    )


def _new_eagle3(ground: HeadInitInputs) -> Eagle3:
    shape, shelf = ground.shape, ground.training_data.packed_rows
    written = torch.from_numpy(shelf.tokens[shelf.weights > 0])
    kept = draft_vocabulary(
        written, shape.vocab_size, min(MAX_DRAFT_VOCABULARY, shape.vocab_size // 2), ground.stop_token_ids
    )
    eagle = Eagle3(shape, kept)
    with torch.no_grad():
        eagle.lm_head.weight.copy_(ground.target_matrices.lm_head_weight.cpu()[kept])
        if ground.final_norm_weight is not None:
            eagle.norm.weight.copy_(ground.final_norm_weight)
    _set_input_scale(eagle, ground)
    return eagle


@torch.no_grad()
def _set_input_scale(head: nn.Module, ground: HeadInitInputs) -> None:
    """Taps are brought to size one while EAGLE-3 learns."""
    stream = [_sample_states(ground, tap) for tap in hidden_state_layers_of("eagle3", ground.shape.layers)]
    sizes = [states.pow(2).mean().sqrt().clamp(min=1e-6) for states in stream]
    cast("Eagle3", head).hidden_state_scale.copy_(
        (1.0 / torch.stack(sizes)).repeat_interleave(ground.shape.hidden_size)
    )


def _prepare_resumed_eagle3(head: nn.Module, ground: HeadInitInputs) -> None:
    """The same scale for a head that goes on, which computes what it did before."""
    _set_input_scale(head, ground)
    eagle = cast("Eagle3", head)
    with torch.no_grad():
        eagle.fc.weight.div_(eagle.hidden_state_scale)


def _new_eagle1(ground: HeadInitInputs) -> Eagle1:
    eagle = Eagle1(ground.shape)
    tokens, states = _sample_tokens_and_states(ground)
    embedded = ground.target_matrices.embedding_weight.float().cpu()[tokens]
    pairs = torch.cat((embedded[1:], states[:-1]), dim=-1)
    initialize_eagle1(eagle.fc.weight, eagle.layer.self_attn, pairs, states[1:])
    return eagle


def _new_mtp(ground: HeadInitInputs) -> MtpBlock:
    block = MtpBlock(ground.shape)
    if ground.final_norm_weight is not None:
        with torch.no_grad():
            block.norm.weight.copy_(ground.final_norm_weight)
    return block


def _sample_states(ground: HeadInitInputs, tap: int) -> Tensor:
    """The states of a few answers at one tap. [n, D]"""
    cache = ground.training_data.cache
    count = min(len(cache.answers), 8 * INIT_SAMPLE_BATCHES)
    place, width = cache.hidden_state_layers.index(tap), cache.hidden_size
    return torch.cat(
        [cache.hidden_states(index)[:, place * width : (place + 1) * width].float() for index in range(count)]
    )


def _sample_tokens_and_states(ground: HeadInitInputs) -> tuple[Tensor, Tensor]:
    """The same answers one behind the other: their tokens [n], and their last states [n, D]."""
    states, shelf = _sample_states(ground, FINAL_NORM), ground.training_data.packed_rows
    return torch.from_numpy(shelf.tokens[: len(states)]), states


def _no_preparation(_head: nn.Module, _ground: HeadInitInputs) -> None:
    """Nothing is missing."""


def _final_layer_only(_layers: int) -> tuple[int, ...]:
    return (FINAL_NORM,)


def _no_hidden_state_layers(_layers: int) -> tuple[int, ...]:
    return ()


HEAD_KINDS: Mapping[str, HeadKind] = {
    "eagle3": HeadKind(
        export_weights.eagle3_hidden_state_layers, _new_eagle3, read_weights.load_eagle3, _prepare_resumed_eagle3,
        lambda eagle, shape: eagle3_loss(eagle, export_weights.eagle3_hidden_state_layers(shape.layers)),
        lambda eagle, target, folder: export_weights.export_eagle3(eagle, target.shape, folder),
    ),
    "eagle": HeadKind(
        _final_layer_only, _new_eagle1, read_weights.load_eagle1, _no_preparation, lambda eagle, _shape: eagle1_loss(eagle),
        lambda eagle, _target, folder: export_weights.export_eagle1(eagle, folder),
    ),
    "medusa": HeadKind(
        _final_layer_only, lambda ground: Medusa(ground.shape.hidden_size), read_weights.load_medusa, _no_preparation,
        lambda medusa, _shape: medusa_loss(medusa),
        lambda medusa, target, folder: export_weights.export_medusa(medusa, target.shape, folder),
    ),
    "mtp": HeadKind(
        _final_layer_only, _new_mtp, read_weights.load_mtp, _no_preparation, lambda block, _shape: mtp_loss(block),
        lambda block, target, folder: export_weights.export_mtp(block, target.shape, folder),
    ),
    "draft": HeadKind(
        _no_hidden_state_layers, lambda ground: new_draft_model(ground.shape, ground.target_matrices.embedding_weight), lambda folder, _: read_weights.load_llama(folder),
        _no_preparation, lambda draft, _shape: draft_loss(draft), export_draft_model,
    ),
}  # fmt: skip
