"""P-EAGLE, of speculators, SpecForge and vLLM: the tensors of EAGLE-3, and `mask_state` of all masks before fc."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from specchat.drafters.eagle.eagle3_format import detect_eagle3
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, require_tensors
from specchat.drafters.heads.spec import HeadSpec
from specchat.errors import ModelError
from specchat_heads.block_spec import BlockConfig, BlockSpec, check_mask_token, has_type
from specchat_heads.peagle_head import PEagleHead

MASK_HIDDEN = "mask_hidden"
MASK_TOKEN_KEYS = ("mask_token_id", "pard_token", "ptd_token_id")  # of trainers, and of vLLM
DEFAULT_DEPTHS = 8  # that the trainers of P-EAGLE use


def detect_peagle(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    name = f"{_publisher(checkpoint)} P-EAGLE"
    if MASK_HIDDEN not in checkpoint.tensors and not has_type(checkpoint, "peagle"):
        return None
    if (mask := _mask_token(checkpoint)) is None:
        evidence, reason = ("the state of its masks, or its name",), "the config has no mask_token_id"
        return HeadSpec("peagle", name, checkpoint.tensors, evidence, unsupported_reason=reason)
    if (spec := detect_eagle3(checkpoint, {MASK_HIDDEN: "mask_state"})) is None:
        return None
    spec = replace(spec, kind="peagle", format=name, network=PEagleHead)
    if spec.unsupported_reason:
        return spec
    require_tensors(spec.tensors, ("mask_state",))
    block = _mask_block(checkpoint, int(mask), spec.target_vocab_size)
    evidence = f"mask_hidden: {block.block_size} tokens in a pass, mask token {block.mask_token_id}"

    def with_masks(each: HeadSpec) -> BlockSpec:
        own = replace(each, kind=spec.kind, format=spec.format, network=PEagleHead, evidence=(*spec.evidence, evidence))
        return BlockSpec(**vars(replace(own, tokens_ahead=block.block_size)), block_config=block)

    return replace(with_masks(spec), variants=tuple(map(with_masks, spec.variants)))


def _publisher(checkpoint: HeadCheckpoint) -> str:
    if checkpoint.speculators_type:
        return "speculators"
    return "SpecForge" if checkpoint.architecture == "PEagleDraftModel" else "vLLM"


def _mask_token(checkpoint: HeadCheckpoint) -> Any:
    return next((checkpoint.config[key] for key in MASK_TOKEN_KEYS if checkpoint.config.get(key) is not None), None)


def _mask_block(checkpoint: HeadCheckpoint, mask: int, vocab_size: int) -> BlockConfig:
    """The last pair and the masks behind it. ModelError when the mask does not fit to `fc` or to the vocabulary."""
    _rows, fc_inputs = checkpoint.matrix_shape("fc.weight")
    if math.prod(checkpoint.tensors.shape(MASK_HIDDEN)) != fc_inputs:
        shape = checkpoint.describe_shape(MASK_HIDDEN)
        raise ModelError(f"{checkpoint.tensors.source}: {shape} is not one state of {fc_inputs} numbers, as fc reads")
    check_mask_token(checkpoint, mask, vocab_size)
    methods = (checkpoint.config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    return BlockConfig(int(methods[0].get("speculative_tokens") or DEFAULT_DEPTHS), mask, samples_from_anchor=True)
