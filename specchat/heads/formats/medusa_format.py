"""Medusa's residual blocks, with an output matrix for every place or with the target's; and Hydra, recognised.

arXiv 2401.10774. `medusa_lm_head.pt` holds `{k}.{l}.linear.*` and, in its first version, `{k}.{L}.weight`; Medusa-2
carries the same under `medusa_head.` inside a whole model.
"""

from __future__ import annotations

import re

from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError
from specchat.heads.formats.head_checkpoint import HeadCheckpoint
from specchat.heads.spec import MEDUSA, HeadDimensions, HeadSpec

BLOCK_PATTERN = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)$")
LM_HEAD_PATTERN = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.weight$")


def detect_medusa(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Residual blocks over the last feature, one column of them for every place ahead."""
    names: dict[str, str] = {}
    for name in checkpoint.tensors.locations:
        if match := BLOCK_PATTERN.match(name):
            names[f"blocks.{match[1]}.{match[2]}.{match[3]}"] = name
        elif match := LM_HEAD_PATTERN.match(name):
            names[f"heads.{match[1]}.weight"] = name
    blocks = [name for name in names if name.startswith("blocks.") and name.endswith(".weight")]
    if not blocks:
        return None
    tensors = checkpoint.tensors.renamed(names)
    width, read = checkpoint.matrix_shape(names[blocks[0]])
    count = 1 + max(int(name.split(".")[1]) for name in blocks)
    outputs = [f"heads.{index}.weight" for index in range(count) if f"heads.{index}.weight" in tensors]
    _check(tensors.source, blocks, count, len(outputs))
    said = checkpoint.config.get("medusa_num_heads")
    warnings = (
        (f"config.json says {said} heads, the file has {count}; the file is right",)
        if said not in (None, count)
        else ()
    )
    is_inside = checkpoint.first_match(r"medusa_head\.") is not None
    vocabulary = tensors.shape(outputs[0])[0] if outputs else int(checkpoint.config.get("vocab_size") or 0)
    own = f"an output matrix each, {list(tensors.shape(outputs[0]))}" if outputs else "the target's output matrix"
    return HeadSpec(
        kind=MEDUSA,
        format="Medusa-2 inside its model" if is_inside else "Medusa-1",
        tensors=tensors,
        evidence=(f"{count} columns of residual blocks {[width, read]}, with {own}",),
        warnings=warnings,
        dimensions=HeadDimensions(width, 1, 1, width, 0, 0.0),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=width,
        target_vocab_size=vocabulary,
        draft_vocab_size=vocabulary,
        tokens_ahead=count,
    )


def detect_hydra(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Heads that also see the tokens guessed before them."""
    if (
        "hydra" not in str(checkpoint.tensors.source)
        and not checkpoint.first_match("hydra")
        and "hydra_num_heads" not in checkpoint.config
    ):
        return None
    return HeadSpec(
        "hydra", "Hydra", checkpoint.tensors, ("its name",), unsupported_reason="its heads depend on each other"
    )


def _check(source: object, blocks: list[str], count: int, outputs: int) -> None:
    if {int(name.split(".")[1]) for name in blocks} != set(range(count)):
        raise ModelError(f"{source}: a part of the head is missing: columns 0 to {count - 1} are not all there")
    if outputs not in (0, count):
        raise ModelError(f"{source}: a part of the head is missing: {outputs} output matrices for {count} columns")
