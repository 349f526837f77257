"""DFlash: `fc` over hidden states of several layers, a norm, and layers over a block of masks.

From z-lab, SpecForge, DeepSpec and vLLM's speculators. The first three count the outputs of layers; z-lab and SpecForge
have their settings in `dflash_config`. speculators counts inputs, and its sliding windows are the same for all slots.
`is_causal: false` lets slots see later ones. DSpark (the same tensors with a Markov head and a confidence head) and
DFlash-2 (with convolutions in its layers and a candidate selector) have a `BlockFormat` of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specchat.drafters.heads.draft_head import DraftHead
from specchat.drafters.heads.head_checkpoint import (
    HeadCheckpoint,
    inputs_and_outputs,
    require_tensors,
    with_layers,
)
from specchat.drafters.heads.spec import HeadSpec
from specchat.engine.model import Model
from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.weights.tensor_files import WeightLoader
from specchat_heads.block_spec import BlockConfig, BlockSpec, check_mask_token, has_type
from specchat_heads.dflash_head import DFlashHead

DFLASH = "dflash"
TENSOR_NAMES = {"hidden_norm.": "feature_norm."} | {
    name: name for name in ("layers.", "fc.", "norm.", "lm_head.", "embed_tokens.", "d2t", "t2d")
}
DEFAULT_BLOCK_SIZE = 16  # of z-lab
UNSUPPORTED_KEYS = ("final_logit_softcapping", "shift_label", "is_causal", "pure_draft_prefix_len")
NEUTRAL_VALUES = {"output_multiplier": 1.0, "input_embedding_scale": 1.0}  # these values change nothing


@dataclass(frozen=True)
class BlockFormat:
    """What a kind of block head has beyond DFlash."""

    kind: str = DFLASH
    title: str = "DFlash"
    network: Callable[[HeadSpec, WeightLoader, Model], DraftHead] = DFlashHead
    tensor_names: Mapping[str, str] = field(default_factory=dict[str, str])  # canonical prefixes by published ones
    token_tables: tuple[str, ...] = ()  # tensors with a row for each token of the target
    samples_from_anchor: bool = False  # these two where the config does not say it
    has_non_causal_windows: bool = False


def detect_dflash(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A head that drafts a block; not Domino, whose block a recurrent network corrects."""
    names = [*checkpoint.tensors.locations, *checkpoint.config, *checkpoint.type_names]
    is_domino = any("domino" in name.lower() for name in names)
    return block_spec(checkpoint, BlockFormat()) if is_block_head(checkpoint) and not is_domino else None


def is_block_head(checkpoint: HeadCheckpoint) -> bool:
    """Whether it has a norm after its `fc`, or the name of such a head."""
    has_norm_after_fc = "hidden_norm.weight" in checkpoint.tensors and "fc.weight" in checkpoint.tensors
    return has_norm_after_fc or "dflash_config" in checkpoint.config or has_type(checkpoint, "dflash", "dspark")


def block_spec(checkpoint: HeadCheckpoint, own: BlockFormat) -> HeadSpec:
    """A head with the tensors of DFlash, and those of this kind."""
    if reason := _unsupported_reason(checkpoint):
        return unsupported_block(checkpoint, own, reason)
    tensors = checkpoint.with_canonical_names({**TENSOR_NAMES, **own.tensor_names})
    require_tensors(tensors, ("fc.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight"))
    (hidden_size, fc_inputs), fc = checkpoint.matrix_shape("fc.weight"), checkpoint.describe_shape("fc.weight")
    if fc_inputs % hidden_size:
        raise ModelError(f"{tensors.source}: the inputs of {fc} are not a multiple of the hidden size {hidden_size}")
    spec = BlockSpec(
        own.kind, _format_name(checkpoint, own), tensors, target_hidden_size=hidden_size, network=own.network
    )
    spec = with_layers(checkpoint, spec, hidden_size, Rope.from_config(checkpoint.text_config), *own.token_tables)
    block, count = _block_config(checkpoint, own, spec.target_vocab_size), fc_inputs // hidden_size
    needed, alternative, reason = _hidden_state_layers(checkpoint, count, spec.dimensions.layers)
    lm_head = "its own" if "lm_head.weight" in tensors else "the target's"
    spec = replace(
        spec,
        evidence=(
            f"hidden_norm after {fc}: {count} hidden states of size {hidden_size}; {reason}",
            f"blocks of {block.block_size} with mask token {block.mask_token_id}; the LM head is {lm_head}",
        ),
        hidden_state_layers=needed,
        tokens_ahead=block.block_size if block.samples_from_anchor else block.block_size - 1,
        block_config=block,
    )
    if "d2t" in tensors:
        require_tensors(tensors, ("lm_head.weight",))
        spec.draft_to_target_ids()
    return spec.with_variants(replace(spec, hidden_state_layers=alternative))


def unsupported_block(checkpoint: HeadCheckpoint, own: BlockFormat, reason: str) -> HeadSpec:
    evidence = ("its name, or the norm after fc",)
    name = _format_name(checkpoint, own)
    return HeadSpec(own.kind, name, checkpoint.tensors, evidence, unsupported_reason=reason)


def _format_name(checkpoint: HeadCheckpoint, own: BlockFormat) -> str:
    publisher = "DeepSpec" if has_type(checkpoint, "dspark") else "z-lab"
    return f"{'speculators' if checkpoint.speculators_type else publisher} {own.title}"


def _block_config(checkpoint: HeadCheckpoint, own: BlockFormat, vocab_size: int) -> BlockConfig:
    source, is_speculators = checkpoint.tensors.source, checkpoint.speculators_type is not None
    block_size = int(block_setting(checkpoint, "block_size") or DEFAULT_BLOCK_SIZE)
    mask_token_id = int(block_setting(checkpoint, "mask_token_id"))
    if block_size < 2:
        raise ModelError(f"{source}: block_size {block_size} has no position to draft")
    check_mask_token(checkpoint, mask_token_id, vocab_size)
    return BlockConfig(
        block_size,
        mask_token_id,
        samples_from_anchor=samples_from_anchor(checkpoint, own),
        windows_start_at_anchor=is_speculators,
        has_non_causal_windows=_has_non_causal_windows(checkpoint, own),
    )


def _has_non_causal_windows(checkpoint: HeadCheckpoint, own: BlockFormat) -> bool:
    """Whether slots see later slots through a sliding window: where the config says so, or by the kind."""
    if checkpoint.speculators_type:
        return bool(checkpoint.config.get("sliding_window_non_causal", own.has_non_causal_windows))
    return checkpoint.config.get("is_causal") is False


def samples_from_anchor(checkpoint: HeadCheckpoint, own: BlockFormat) -> bool:
    """Whether slots predict the next position: as DSpark's do, unless the config denies it."""
    is_default = own.samples_from_anchor or has_type(checkpoint, "dspark")
    return bool(checkpoint.config.get("sample_from_anchor", is_default))


def _hidden_state_layers(
    checkpoint: HeadCheckpoint, count: int, layers: int
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The layers whose states the head reads, the alternative, and the reason as text."""
    input_ids = checkpoint.config.get("aux_hidden_state_layer_ids")
    ids = (
        input_ids
        or block_setting(checkpoint, "target_layer_ids")
        or _evenly_spaced_layers(checkpoint.config.get("num_target_layers"), layers)
    )
    as_inputs, as_outputs = inputs_and_outputs(checkpoint, ids, count)
    if input_ids:
        return as_inputs, as_outputs, f"the config has {list(as_inputs)}, inputs of these layers"
    return as_outputs, as_inputs, f"outputs of the layers {list(as_inputs)}"


def _evenly_spaced_layers(target_layers: int | None, layers: int) -> list[int] | None:
    """The default: one layer for each of the head's, evenly from the second to the fourth from the end."""
    if target_layers is None:
        return None
    if layers == 1:
        return [target_layers // 2]
    return [round(1 + index * (target_layers - 4) / (layers - 1)) for index in range(layers)]


def _unsupported_reason(checkpoint: HeadCheckpoint) -> str | None:
    changed = [key for key, neutral in NEUTRAL_VALUES.items() if block_setting(checkpoint, key) not in (None, neutral)]
    for key in [*changed, *(key for key in UNSUPPORTED_KEYS if block_setting(checkpoint, key))]:
        return f"DFlash's {key} = {block_setting(checkpoint, key)}"
    if (projector := block_setting(checkpoint, "projector_type")) not in (None, "dflash"):
        return f"a DFlash with the projector {projector}"
    if has_type(checkpoint, "gemma4dspark", "dsv4"):
        return f"the layers of {checkpoint.architecture}"
    if block_setting(checkpoint, "mask_token_id") is None:
        return "the config has no mask_token_id"
    return None


def block_setting(checkpoint: HeadCheckpoint, key: str) -> Any:
    """A setting from z-lab's `dflash_config`, or from the top level of the config."""
    nested: Mapping[str, Any] = checkpoint.config.get("dflash_config") or {}
    return nested[key] if nested.get(key) is not None else checkpoint.config.get(key)
