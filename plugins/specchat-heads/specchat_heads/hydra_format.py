"""Hydra (arXiv 2402.05109): `hydra_lm_head.pt` with `hydra_mlp.{k}.{l}.*` and an LM head with a bias for each head.

In Hydra++ every second module of a head is a dropout, so its blocks have odd numbers, and `prefix_embeding_layer.*`
(the publisher's spelling) is a decoder layer like those of the target. The config has no sizes: that of an attention
head is in the table of the rotary embedding. The canonical names are those of Medusa, `blocks.{k}.{l}.*` and
`heads.{k}`, with `shortcuts.{k}` in place of the residual connection of a first block that also reads embeddings.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from specchat.drafters.heads.head_checkpoint import (
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.drafters.heads.spec import DEFAULT_TRAINED_LENGTH, HeadDimensions, HeadSpec
from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.weights.tensor_files import TensorFiles
from specchat_heads.hydra_head import HydraHead

HYDRA = "hydra"
BLOCK_PATTERN = re.compile(r"hydra_mlp\.(\d+)\.(\d+)\.(linear|res_connection)\.(weight|bias)$")
LM_HEAD_PATTERN = re.compile(r"hydra_lm_head\.(\d+)(?:\.1)?\.(weight|bias)$")
PREFIX_PATTERN = re.compile(r"prefix_embeding_layer\.((?:layers|norm)\..*)$")
BLOCK_WEIGHT = re.compile(r"blocks\.\d+\.\d+\.weight$")
INV_FREQ = "layers.0.self_attn.rotary_emb.inv_freq"


def detect_hydra(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Heads that also read the draft tokens before theirs."""
    names = _canonical_names(checkpoint.tensors.locations)
    columns = {int(name.split(".")[1]) for name in names if name.startswith("blocks.")}
    if not columns and "hydra_num_heads" not in checkpoint.config and not checkpoint.first_match("hydra_"):
        return None
    if reason := _unsupported_reason(checkpoint, columns):
        return HeadSpec(HYDRA, "Hydra", checkpoint.tensors, ("its name",), unsupported_reason=reason)
    tensors, count = checkpoint.tensors.renamed(names), 1 + max(columns)
    hidden_size, vocab_size = _check_columns(tensors, count)
    dimensions, warnings = HeadDimensions(hidden_size, 1, 1, hidden_size, 0, 0.0), list[str]()
    if is_plus := any(name.startswith("layers.") for name in names):
        dimensions, warnings = _prefix_dimensions(tensors, checkpoint.config, hidden_size)
    if (configured := checkpoint.config.get("hydra_num_heads")) not in (None, count):
        warnings.append(f"config.json has {configured} heads, the file has {count}; the file is used")
    reads = "that also read the tokens before theirs" if "shortcuts.0.weight" in tensors else "that read no tokens"
    below = "a decoder layer over the text" if is_plus else "the final hidden state"
    trained_length = int(checkpoint.config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH)
    return HeadSpec(
        kind=HYDRA,
        network=HydraHead,
        uses_target_tables=False,
        format="Hydra++" if is_plus else "Hydra",
        tensors=tensors,
        evidence=(f"{count} heads {reads}, above {below}, with an LM head each, {[vocab_size, hidden_size]}",),
        warnings=tuple(warnings),
        dimensions=dimensions,
        rope=Rope.from_config(checkpoint.config),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        context_window=trained_length if is_plus else 1,
        tokens_ahead=count,
    )


def _canonical_names(names: Iterable[str]) -> dict[str, str]:
    """The names of the known tensors by canonical name. The blocks of a head are counted without its dropouts."""
    canonical: dict[str, str] = {}
    numbers: dict[str, set[int]] = {}  # of the blocks of each head
    for name in names:
        if match := BLOCK_PATTERN.match(name):
            numbers.setdefault(match[1], set()).add(int(match[2]))
    for name in names:
        if match := BLOCK_PATTERN.match(name):
            block = sorted(numbers[match[1]]).index(int(match[2]))
            part = f"blocks.{match[1]}.{block}" if match[3] == "linear" else f"shortcuts.{match[1]}"
            canonical[f"{part}.{match[4]}"] = name
        elif match := LM_HEAD_PATTERN.match(name):
            canonical[f"heads.{match[1]}.{match[2]}"] = name
        elif match := PREFIX_PATTERN.match(name):
            canonical[match[1]] = name
    return canonical


def _unsupported_reason(checkpoint: HeadCheckpoint, columns: set[int]) -> str | None:
    if not columns:
        return f"Hydra heads of the type {checkpoint.config.get('hydra_head_arch')}"
    if offset := checkpoint.config.get("hidden_state_offset"):
        return f"Hydra with hidden_state_offset = {offset}"
    return unsupported_layer_reason(checkpoint.config, Rope.from_config(checkpoint.config))


def _check_columns(tensors: TensorFiles, count: int) -> tuple[int, int]:
    """Hidden size and vocabulary; ModelError when a part of a head is missing or has another size."""
    reads_tokens = "shortcuts.0.weight" in tensors
    first_parts = ("blocks.{}.0.weight", "shortcuts.{}.weight") if reads_tokens else ("blocks.{}.0.weight",)
    names = [part.format(index) for index in range(count) for part in ("heads.{}.weight", *first_parts)]
    require_tensors(tensors, names)
    vocab_size, hidden_size = tensors.shape("heads.0.weight")
    sizes = {name: (hidden_size, hidden_size) for name in tensors.locations if BLOCK_WEIGHT.match(name)}
    for index in range(count):
        first = hidden_size, hidden_size * (2 + index if reads_tokens else 1)
        sizes |= {part.format(index): first for part in first_parts}
        sizes[f"heads.{index}.weight"] = vocab_size, hidden_size
    for name, size in sizes.items():
        if tensors.shape(name) != size:
            raise ModelError(f"{tensors.source}: {name} {list(tensors.shape(name))} should be {list(size)}")
    return hidden_size, vocab_size


def _prefix_dimensions(
    tensors: TensorFiles, config: Mapping[str, Any], hidden_size: int
) -> tuple[HeadDimensions, list[str]]:
    """The sizes of the layer below the heads. The table of its rotary embedding has half the size of a head."""
    sizes = {"head_dim": 2 * tensors.shape(INV_FREQ)[0]} if INV_FREQ in tensors else {}
    require_tensors(tensors, ["norm.weight", "layers.0.input_layernorm.weight", *layer_tensor_names(1)])
    return dimensions_from_tensors(tensors, dict(config) | sizes, hidden_size)
