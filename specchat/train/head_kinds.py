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

from specchat.engine.model import FINAL
from specchat.errors import ModelError, UsageError
from specchat.forward.rope import Rope
from specchat.heads.detect import inspect_head
from specchat.train import export_weights, read_weights
from specchat.train.distillation_batches import Ends, Lessons
from specchat.train.distillation_losses import (
    StudentLoss,
    draft_loss,
    eagle_loss,
    first_eagle_loss,
    kept_vocabulary,
    medusa_loss,
    mtp_loss,
)
from specchat.train.draft_models import begin_draft, is_draft, publish_draft
from specchat.train.eagle_initialization import start_first_eagle
from specchat.train.frozen_target import Target, read_config
from specchat.train.trainable_heads import Eagle, FirstEagle, Medusa, MultiToken
from specchat.train.trainable_llama import Shape

MOST_DRAFTED = 32_000  # tokens of EAGLE-3's own vocabulary; half of the target's where that is less
LEAST_LAYERS = 5  # for EAGLE-3's three taps to be three places
SAMPLED_BATCHES = 4  # that a head begins with


@dataclass(frozen=True)
class Ground:
    """What a new head grows from."""

    shape: Shape
    ends: Ends
    last_norm: Tensor | None  # weight of the target's last norm, where it is known
    lessons: Lessons
    stop: frozenset[int]  # tokens that end an answer


@dataclass(frozen=True)
class Kind:
    """One kind of head."""

    taps: Callable[[int], tuple[int, ...]]  # the states it reads of a target of so many layers
    begin: Callable[[Ground], nn.Module]
    read: Callable[[Path, Shape], nn.Module]
    settle: Callable[[nn.Module, Ground], None]  # what a head that goes on still needs
    loss: Callable[[Any, Shape], StudentLoss]
    publish: Callable[[Any, Target, Path], None]


def kind_named(name: str) -> Kind:
    """UsageError for a kind that cannot be trained."""
    if name not in KINDS:
        raise UsageError(f"unknown kind of head {name!r}; known are {', '.join(KINDS)}")
    return KINDS[name]


def taps_of(name: str, layers: int) -> tuple[int, ...]:
    """The states that a head of this kind reads. ModelError for a target that is too shallow for it."""
    if name == "eagle3" and layers < LEAST_LAYERS:
        others = ", ".join(other for other in KINDS if other not in (name, "draft"))
        raise ModelError(f"eagle3 reads three depths of a target, and this one has {layers} layers; take {others}")
    return kind_named(name).taps(layers)


def read_head(name: str, folder: Path, target: Shape) -> nn.Module:
    """A head of this kind out of its folder, to be trained further. ModelError where ours has no place for it."""
    found = "draft" if is_draft(folder) else inspect_head(folder).kind
    if found != name:
        raise ModelError(f"{folder}: this is a head of kind {found}, not {name}")
    try:
        head = kind_named(name).read(folder, shape_beside(read_config(folder), target))
    except (KeyError, RuntimeError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{folder}: it is not saved in a form that can be trained further: {reason}") from error
    return head.train().requires_grad_(True)


def shape_beside(config: Mapping[str, Any], target: Shape) -> Shape:
    """The sizes of a head as its config has them; those it does not name are the target's, but for what turns it.

    The depth is always the target's: MTP is named after it.
    """
    if config.get("num_key_value_heads") not in (None, config.get("num_attention_heads")):
        raise ModelError("a head whose queries share keys cannot be trained further; train a new one")
    rope = Rope.of(config)
    if rope.kind != "default" or rope.share != 1.0:
        raise ModelError(f"a head that is turned as {rope.kind} cannot be trained further; train a new one")
    heads = config.get("num_attention_heads") or target.heads
    return replace(
        target,
        heads=heads,
        head_width=config.get("head_dim") or target.width // heads,
        inner=config.get("intermediate_size") or target.inner,
        context=config.get("max_position_embeddings") or target.context,
        epsilon=config.get("rms_norm_eps") or target.epsilon,
        theta=rope.theta,
    )


def _begin_eagle3(ground: Ground) -> Eagle:
    shape, shelf = ground.shape, ground.lessons.shelf
    written = torch.from_numpy(shelf.tokens[shelf.weights > 0])
    kept = kept_vocabulary(written, shape.vocabulary, min(MOST_DRAFTED, shape.vocabulary // 2), ground.stop)
    eagle = Eagle(shape, kept)
    with torch.no_grad():
        eagle.lm_head.weight.copy_(ground.ends.output.cpu()[kept])
        if ground.last_norm is not None:
            eagle.norm.weight.copy_(ground.last_norm)
    _set_scale(eagle, ground)
    return eagle


@torch.no_grad()
def _set_scale(head: nn.Module, ground: Ground) -> None:
    """Taps are brought to size one while EAGLE-3 learns."""
    stream = [_sampled(ground, tap) for tap in taps_of("eagle3", ground.shape.layers)]
    sizes = [states.pow(2).mean().sqrt().clamp(min=1e-6) for states in stream]
    cast("Eagle", head).tap_scale.copy_((1.0 / torch.stack(sizes)).repeat_interleave(ground.shape.width))


def _settle_eagle3(head: nn.Module, ground: Ground) -> None:
    """The same scale for a head that goes on, which computes what it did before."""
    _set_scale(head, ground)
    eagle = cast("Eagle", head)
    with torch.no_grad():
        eagle.fc.weight.div_(eagle.tap_scale)


def _begin_eagle(ground: Ground) -> FirstEagle:
    eagle = FirstEagle(ground.shape)
    tokens, states = _sampled_text(ground)
    embedded = ground.ends.embedding.float().cpu()[tokens]
    pairs = torch.cat((embedded[1:], states[:-1]), dim=-1)
    start_first_eagle(eagle.fc.weight, eagle.layer.self_attn, pairs, states[1:])
    return eagle


def _begin_mtp(ground: Ground) -> MultiToken:
    block = MultiToken(ground.shape)
    if ground.last_norm is not None:
        with torch.no_grad():
            block.norm.weight.copy_(ground.last_norm)
    return block


def _sampled(ground: Ground, tap: int) -> Tensor:
    """The states of a few answers at one tap. [n, D]"""
    cache = ground.lessons.cache
    count = min(len(cache.answers), 8 * SAMPLED_BATCHES)
    place, width = cache.taps.index(tap), cache.width
    return torch.cat([cache.states(index)[:, place * width : (place + 1) * width].float() for index in range(count)])


def _sampled_text(ground: Ground) -> tuple[Tensor, Tensor]:
    """The same answers one behind the other: their tokens [n], and their last states [n, D]."""
    states, shelf = _sampled(ground, FINAL), ground.lessons.shelf
    return torch.from_numpy(shelf.tokens[: len(states)]), states


def _nothing(_head: nn.Module, _ground: Ground) -> None:
    """Nothing is missing."""


def _final(_layers: int) -> tuple[int, ...]:
    return (FINAL,)


def _no_taps(_layers: int) -> tuple[int, ...]:
    return ()


KINDS: Mapping[str, Kind] = {
    "eagle3": Kind(
        export_weights.eagle_taps, _begin_eagle3, read_weights.read_eagle, _settle_eagle3,
        lambda eagle, shape: eagle_loss(eagle, export_weights.eagle_taps(shape.layers)),
        lambda eagle, target, folder: export_weights.export_eagle(eagle, target.shape, folder),
    ),
    "eagle": Kind(
        _final, _begin_eagle, read_weights.read_first_eagle, _nothing, lambda eagle, _shape: first_eagle_loss(eagle),
        lambda eagle, _target, folder: export_weights.export_first_eagle(eagle, folder),
    ),
    "medusa": Kind(
        _final, lambda ground: Medusa(ground.shape.width), read_weights.read_medusa, _nothing,
        lambda medusa, _shape: medusa_loss(medusa),
        lambda medusa, target, folder: export_weights.export_medusa(medusa, target.shape, folder),
    ),
    "mtp": Kind(
        _final, _begin_mtp, read_weights.read_mtp, _nothing, lambda block, _shape: mtp_loss(block),
        lambda block, target, folder: export_weights.export_mtp(block, target.shape, folder),
    ),
    "draft": Kind(
        _no_taps, lambda ground: begin_draft(ground.shape, ground.ends.embedding), lambda folder, _: read_weights.read_network(folder),
        _nothing, lambda draft, _shape: draft_loss(draft), publish_draft,
    ),
}  # fmt: skip
