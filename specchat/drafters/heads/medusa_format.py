"""Medusa (arXiv 2401.10774): residual blocks, with their own LM heads or the target's.

`medusa_lm_head.pt` has `{k}.{l}.linear.*` and, in its first version, the LM heads `{k}.{L}.weight`; Medusa-2 has the
same tensors with the prefix `medusa_head.` in a complete model.
"""

import re

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import MEDUSA, HeadDimensions, HeadSpec
from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError

BLOCK_PATTERN = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)$")
LM_HEAD_PATTERN = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.weight$")


def detect_medusa(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Residual blocks over the final hidden state, one column for every token ahead."""
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
    rows, hidden_size = checkpoint.matrix_shape(names[blocks[0]])
    count = 1 + max(int(name.split(".")[1]) for name in blocks)
    lm_heads = [f"heads.{index}.weight" for index in range(count) if f"heads.{index}.weight" in tensors]
    _check(tensors.source, blocks, count, len(lm_heads))
    configured = checkpoint.config.get("medusa_num_heads")
    warning = f"config.json has {configured} heads, the file has {count}; the file is used"
    is_inside = checkpoint.first_match(r"medusa_head\.") is not None
    vocab_size = tensors.shape(lm_heads[0])[0] if lm_heads else int(checkpoint.config.get("vocab_size") or 0)
    heads = f"an LM head each, {list(tensors.shape(lm_heads[0]))}" if lm_heads else "the target's LM head"
    return HeadSpec(
        kind=MEDUSA,
        format="Medusa-2 in its target's checkpoint" if is_inside else "Medusa-1",
        tensors=tensors,
        evidence=(f"{count} columns of residual blocks {[rows, hidden_size]}, with {heads}",),
        warnings=(warning,) if configured not in (None, count) else (),
        dimensions=HeadDimensions(rows, 1, 1, rows, 0, 0.0),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=rows,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        tokens_ahead=count,
    )


def _check(source: object, blocks: list[str], count: int, lm_heads: int) -> None:
    if {int(name.split(".")[1]) for name in blocks} != set(range(count)):
        raise ModelError(f"{source}: a part of the head is missing: not all columns from 0 to {count - 1} exist")
    if lm_heads not in (0, count):
        raise ModelError(f"{source}: a part of the head is missing: {lm_heads} LM heads for {count} columns")
