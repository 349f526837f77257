"""DFlash: `fc` over several taps and a norm behind it, outside of the layers, which fill a block of masks.

z-lab's own checkpoints, SpecForge's, and those of vLLM's speculators. The first two count the outputs of layers and put
their settings into `dflash_config`; speculators counts inputs, and has windows that reach as far from every slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.heads.formats.head_checkpoint import (
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.heads.spec import DEFAULT_TRAINED_LENGTH, DFLASH, BlockConfig, HeadSpec
from specchat.models.tensor_files import TensorFiles

TENSOR_NAMES = {"hidden_norm.": "feature_norm."} | {
    name: name for name in ("layers.", "fc.", "norm.", "lm_head.", "embed_tokens.", "d2t", "t2d")
}
DEFAULT_BLOCK_SIZE = 16  # of z-lab's, where a config says none
UNSUPPORTED_KEYS = ("final_logit_softcapping", "shift_label", "is_causal", "pure_draft_prefix_len")
NEUTRAL_VALUES = {"output_multiplier": 1.0, "input_embedding_scale": 1.0}  # what changes nothing


def detect_dflash(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A head that fills a block, by the norm behind its `fc`, or by its name."""
    says = (checkpoint.speculators_type or "", checkpoint.architecture.lower())
    has_block = "hidden_norm.weight" in checkpoint.tensors and "fc.weight" in checkpoint.tensors
    if not has_block and "dflash_config" not in checkpoint.config and not any("dflash" in word for word in says):
        return None
    name = f"{'speculators' if checkpoint.speculators_type else 'z-lab'} DFlash"
    if trouble := _unsupported_reason(checkpoint):
        return HeadSpec(
            DFLASH, name, checkpoint.tensors, ("its name, or a norm behind fc",), unsupported_reason=trouble
        )
    tensors, config = checkpoint.with_canonical_names(TENSOR_NAMES), checkpoint.text_config
    require_tensors(tensors, ("fc.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight"))
    width, read = checkpoint.matrix_shape("fc.weight")
    if read % width:
        raise ModelError(
            f"{checkpoint.tensors.source}: {checkpoint.describe_shape('fc.weight')} is no whole number of states of {width}"
        )
    block, warnings = dimensions_from_tensors(tensors, config, width)
    require_tensors(tensors, layer_tensor_names(block.layers))
    rope, vocabulary = Rope.from_config(config), _target_vocab_size(checkpoint, tensors)
    slots, (taps, other, why) = (
        _block_config(checkpoint, vocabulary),
        _hidden_state_layers(checkpoint, read // width, block.layers),
    )
    output = "its own" if "lm_head.weight" in tensors else "the target's"
    spec = HeadSpec(
        kind=DFLASH,
        format=name,
        tensors=tensors,
        evidence=(
            f"hidden_norm behind {checkpoint.describe_shape('fc.weight')}: {read // width} taps of width {width}; {why}",
            f"blocks of {slots.block_size} with token {slots.mask_token_id} as mask; its output matrix is {output}",
        ),
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        dimensions=block,
        rope=rope,
        hidden_state_layers=taps,
        target_hidden_size=width,
        target_vocab_size=vocabulary,
        draft_vocab_size=tensors.shape("d2t")[0] if "d2t" in tensors else vocabulary,
        context_window=int(config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH),
        tokens_ahead=slots.block_size if slots.samples_from_anchor else slots.block_size - 1,
        target_layers=checkpoint.config.get("num_target_layers"),
        block_config=slots,
    )
    if "d2t" in tensors:
        require_tensors(tensors, ("lm_head.weight",))
        spec.draft_to_target_ids()
    return spec.with_variants(replace(spec, taps=other))


def _block_config(checkpoint: HeadCheckpoint, vocab_size: int) -> BlockConfig:
    size, mask = (
        int(_setting(checkpoint, "block_size") or DEFAULT_BLOCK_SIZE),
        int(_setting(checkpoint, "mask_token_id")),
    )
    if size < 2:
        raise ModelError(f"{checkpoint.tensors.source}: block_size {size} leaves no place to guess")
    if mask < 0 or (vocab_size and mask >= vocab_size):
        raise ModelError(
            f"{checkpoint.tensors.source}: its mask is token {mask}, outside the vocabulary of {vocab_size}"
        )
    is_of_speculators = checkpoint.speculators_type is not None
    return BlockConfig(
        size,
        mask,
        samples_from_anchor=bool(checkpoint.config.get("sample_from_anchor")),
        windows_start_at_anchor=is_of_speculators,
        has_non_causal_windows=is_of_speculators and bool(checkpoint.config.get("sliding_window_non_causal")),
    )


def _hidden_state_layers(
    checkpoint: HeadCheckpoint, count: int, layers: int
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The hidden states it reads, those of the other reading of its config, and why, in words."""
    inputs = checkpoint.config.get("aux_hidden_state_layer_ids")
    ids = (
        inputs
        or _setting(checkpoint, "target_layer_ids")
        or _evenly_spaced_layers(checkpoint.config.get("num_target_layers"), layers)
    )
    if ids is None:
        raise ModelError(f"{checkpoint.tensors.source}: {count} taps, and the config does not say which")
    if len(ids) != count:
        raise ModelError(f"{checkpoint.tensors.source}: the config names {len(ids)} taps ({ids}), but fc reads {count}")
    said, after = tuple(int(index) for index in ids), tuple(int(index) + 1 for index in ids)
    if inputs:
        return said, after, f"its config names {list(said)}, inputs of those layers"
    return after, said, f"outputs of the layers {list(said)}"


def _evenly_spaced_layers(target_layers: int | None, layers: int) -> list[int] | None:
    """Where a config names none: evenly from the second layer to the fourth from the end, one for each of the head."""
    if target_layers is None:
        return None
    if layers == 1:
        return [target_layers // 2]
    return [round(1 + index * (target_layers - 4) / (layers - 1)) for index in range(layers)]


def _target_vocab_size(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> int:
    """Tokens of the target: what a table of them says before what the config says."""
    for name in ("t2d", "embed_tokens.weight", *(() if "d2t" in tensors else ("lm_head.weight",))):
        if name in tensors:
            return tensors.shape(name)[0]
    return int(checkpoint.text_config.get("vocab_size") or 0)


def _unsupported_reason(checkpoint: HeadCheckpoint) -> str | None:
    """What is recognised and not computed yet."""
    if checkpoint.first_match("candidate_selector") or checkpoint.first_match(r"layers\.\d+\.(attention|mlp)_conv\."):
        return "DFlash-2's convolutions and candidate selector"
    changed = [key for key, usual in NEUTRAL_VALUES.items() if _setting(checkpoint, key) not in (None, usual)]
    for key in [*changed, *(key for key in UNSUPPORTED_KEYS if _setting(checkpoint, key))]:
        return f"DFlash's {key} = {_setting(checkpoint, key)}"
    if _setting(checkpoint, "projector_type") not in (None, "dflash"):
        return f"a DFlash with {_setting(checkpoint, 'projector_type')} behind it"
    if _setting(checkpoint, "mask_token_id") is None:
        return "its config does not say which token is its mask"
    return None


def _setting(checkpoint: HeadCheckpoint, key: str) -> Any:
    """A setting, in the table of its own that z-lab has for them or beside all others."""
    own: Mapping[str, Any] = checkpoint.config.get("dflash_config") or {}
    return own[key] if own.get(key) is not None else checkpoint.config.get(key)
