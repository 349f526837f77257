"""Medusa's residual blocks, with an output matrix for every place or with the target's; and Hydra, recognised.

arXiv 2401.10774. `medusa_lm_head.pt` holds `{k}.{l}.linear.*` and, in its first version, `{k}.{L}.weight`; Medusa-2
carries the same under `medusa_head.` inside a whole model.
"""

from __future__ import annotations

import re

from specchat.engine.model import FINAL
from specchat.errors import ModelError
from specchat.heads.formats.checkpoint_files import Found
from specchat.heads.spec import MEDUSA, Block, HeadSpec

BLOCK = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)$")
OUTPUT = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.weight$")


def medusa(found: Found) -> HeadSpec | None:
    """Residual blocks over the last feature, one column of them for every place ahead."""
    names: dict[str, str] = {}
    for name in found.tensors.places:
        if match := BLOCK.match(name):
            names[f"blocks.{match[1]}.{match[2]}.{match[3]}"] = name
        elif match := OUTPUT.match(name):
            names[f"heads.{match[1]}.weight"] = name
    blocks = [name for name in names if name.startswith("blocks.") and name.endswith(".weight")]
    if not blocks:
        return None
    tensors = found.tensors.renamed(names)
    width, read = found.matrix(names[blocks[0]])
    count = 1 + max(int(name.split(".")[1]) for name in blocks)
    outputs = [f"heads.{index}.weight" for index in range(count) if f"heads.{index}.weight" in tensors]
    _check(tensors.source, blocks, count, len(outputs))
    said = found.config.get("medusa_num_heads")
    warnings = (
        (f"config.json says {said} heads, the file has {count}; the file is right",)
        if said not in (None, count)
        else ()
    )
    is_inside = found.first(r"medusa_head\.") is not None
    vocabulary = tensors.shape(outputs[0])[0] if outputs else int(found.config.get("vocab_size") or 0)
    own = f"an output matrix each, {list(tensors.shape(outputs[0]))}" if outputs else "the target's output matrix"
    return HeadSpec(
        kind=MEDUSA,
        format="Medusa-2 inside its model" if is_inside else "Medusa-1",
        tensors=tensors,
        evidence=(f"{count} columns of residual blocks {[width, read]}, with {own}",),
        warnings=warnings,
        block=Block(width, 1, 1, width, 0, 0.0),
        taps=(FINAL,),
        reads=width,
        vocabulary=vocabulary,
        drafted=vocabulary,
        count=count,
    )


def hydra(found: Found) -> HeadSpec | None:
    """Heads that also see the tokens guessed before them."""
    if "hydra" not in str(found.tensors.source) and not found.first("hydra") and "hydra_num_heads" not in found.config:
        return None
    return HeadSpec("hydra", "Hydra", found.tensors, ("its name",), unsupported="its heads depend on each other")


def _check(source: object, blocks: list[str], count: int, outputs: int) -> None:
    if {int(name.split(".")[1]) for name in blocks} != set(range(count)):
        raise ModelError(f"{source}: a part of the head is missing: columns 0 to {count - 1} are not all there")
    if outputs not in (0, count):
        raise ModelError(f"{source}: a part of the head is missing: {outputs} output matrices for {count} columns")
