"""DFlash, DFlash-2 and DSpark: `fc` over hidden states of several layers, a norm, and layers over a block of masks.

From z-lab, SpecForge, DeepSpec and vLLM's speculators. The first three count the outputs of layers; z-lab and SpecForge
have their settings in `dflash_config`. speculators counts inputs, and its sliding windows are the same for all slots.
DSpark has the same tensors with a Markov head and a confidence head, and each slot predicts the next position. DFlash-2
has them with convolutions in its layers and a candidate selector; `is_causal: false` lets slots see later ones.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.drafters.heads.dflash_head import DFlashHead
from specchat.drafters.heads.head_checkpoint import (
    HeadCheckpoint,
    check_mask_token,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    target_vocab_size,
    unsupported_layer_reason,
)
from specchat.drafters.heads.spec import (
    DEFAULT_TRAINED_LENGTH,
    DFLASH,
    BlockConfig,
    HeadDimensions,
    HeadSpec,
)
from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.weights.tensor_files import TensorFiles

MARKOV_PARTS = {
    "markov_w1.": "embeddings.",
    "markov_w2.": "projection.",
    "gate_proj.": "gate.",
    "joint_proj.": "joint.",
}
TENSOR_NAMES = (
    {f"markov_head.{old}": f"markov.{new}" for old, new in MARKOV_PARTS.items()}
    | {
        "hidden_norm.": "feature_norm.",
        "confidence_head.proj.": "confidence.",
        "candidate_selector.predecessor_codebook": "selector.predecessors",
        "candidate_selector.successor_codebook": "selector.successors",
        "candidate_selector.hidden_projection.": "selector.projection.",
    }
    | {name: name for name in ("layers.", "fc.", "norm.", "lm_head.", "embed_tokens.", "d2t", "t2d")}
)
DFLASH2, DSPARK = "dflash2", "dspark"
DEFAULT_BLOCK_SIZE = 16  # of z-lab
DEFAULT_CANDIDATES = 16  # of DFlash-2
DISPLAY_NAMES = {DFLASH: "DFlash", DFLASH2: "DFlash-2", DSPARK: "DSpark"}
PROJECTION = "kernel_projection.weight"  # of a convolution
SELECTOR_PARTS = ("selector.predecessors", "selector.successors", "selector.projection.weight")
UNSUPPORTED_KEYS = ("final_logit_softcapping", "shift_label", "is_causal", "pure_draft_prefix_len")
NEUTRAL_VALUES = {"output_multiplier": 1.0, "input_embedding_scale": 1.0}  # these values change nothing


def detect_dflash(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A head that drafts a block, recognized by the norm after its `fc`, or by its name."""
    has_norm_after_fc = "hidden_norm.weight" in checkpoint.tensors and "fc.weight" in checkpoint.tensors
    has_name = "dflash_config" in checkpoint.config or _has_name(checkpoint, "dflash", "dspark")
    if not has_norm_after_fc and not has_name:
        return None
    kind, publisher = _kind(checkpoint), "DeepSpec" if _has_name(checkpoint, "dspark") else "z-lab"
    name = f"{'speculators' if checkpoint.speculators_type else publisher} {DISPLAY_NAMES[kind]}"
    if reason := _unsupported_reason(checkpoint):
        evidence = ("its name, or the norm after fc",)
        return HeadSpec(kind, name, checkpoint.tensors, evidence, unsupported_reason=reason)
    tensors, config = checkpoint.with_canonical_names(TENSOR_NAMES), checkpoint.text_config
    require_tensors(tensors, ("fc.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight"))
    (hidden_size, fc_inputs), fc = checkpoint.matrix_shape("fc.weight"), checkpoint.describe_shape("fc.weight")
    if fc_inputs % hidden_size:
        raise ModelError(f"{tensors.source}: the inputs of {fc} are not a multiple of the hidden size {hidden_size}")
    dimensions, warnings = dimensions_from_tensors(tensors, config, hidden_size)
    require_tensors(tensors, layer_tensor_names(dimensions.layers))
    rope, vocab_size = Rope.from_config(config), target_vocab_size(checkpoint, tensors)
    block, count = _block_config(checkpoint, vocab_size), fc_inputs // hidden_size
    needed, alternative, reason = _hidden_state_layers(checkpoint, count, dimensions.layers)
    choice = f" and {block.candidates} candidates in each slot" if block.candidates else ""
    lm_head = "its own" if "lm_head.weight" in tensors else "the target's"
    draft_vocab_size = tensors.shape("d2t")[0] if "d2t" in tensors else vocab_size
    if kind == DSPARK:
        _require_correction_shapes(checkpoint, tensors, hidden_size, vocab_size, draft_vocab_size)
    if kind == DFLASH2:
        _require_selector_shapes(tensors, hidden_size, vocab_size)
        _require_convolution_shapes(tensors, dimensions, block.block_size)
    spec = HeadSpec(
        kind=kind,
        network=DFlashHead,
        format=name,
        tensors=tensors,
        evidence=(
            f"hidden_norm after {fc}: {count} hidden states of size {hidden_size}; {reason}",
            f"blocks of {block.block_size} with mask token {block.mask_token_id}{choice}; the LM head is {lm_head}",
        ),
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        dimensions=dimensions,
        rope=rope,
        hidden_state_layers=needed,
        target_hidden_size=hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=draft_vocab_size,
        context_window=int(config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH),
        tokens_ahead=block.block_size if block.samples_from_anchor else block.block_size - 1,
        target_layers=checkpoint.config.get("num_target_layers"),
        block_config=block,
    )
    if "d2t" in tensors:
        require_tensors(tensors, ("lm_head.weight",))
        spec.draft_to_target_ids()
    return spec.with_variants(replace(spec, hidden_state_layers=alternative))


def _block_config(checkpoint: HeadCheckpoint, vocab_size: int) -> BlockConfig:
    source, is_speculators = checkpoint.tensors.source, checkpoint.speculators_type is not None
    block_size = int(_setting(checkpoint, "block_size") or DEFAULT_BLOCK_SIZE)
    candidates = int(_setting(checkpoint, "selector_top_k") or DEFAULT_CANDIDATES)
    mask_token_id = int(_setting(checkpoint, "mask_token_id"))
    if block_size < 2:
        raise ModelError(f"{source}: block_size {block_size} has no position to draft")
    check_mask_token(checkpoint, mask_token_id, vocab_size)
    return BlockConfig(
        block_size,
        mask_token_id,
        samples_from_anchor=_samples_from_anchor(checkpoint),
        windows_start_at_anchor=is_speculators,
        has_non_causal_windows=_has_non_causal_windows(checkpoint),
        candidates=min(candidates, vocab_size) if _kind(checkpoint) == DFLASH2 else 0,
    )


def _has_non_causal_windows(checkpoint: HeadCheckpoint) -> bool:
    """Slots see later slots through a sliding window in DFlash-2 of speculators, or where the config says so."""
    if checkpoint.speculators_type:
        return bool(checkpoint.config.get("sliding_window_non_causal", _kind(checkpoint) == DFLASH2))
    return checkpoint.config.get("is_causal") is False


def _samples_from_anchor(checkpoint: HeadCheckpoint) -> bool:
    """DSpark's slots predict the next position, unless its config denies it."""
    is_dspark = _kind(checkpoint) == DSPARK or _has_name(checkpoint, "dspark")
    return bool(checkpoint.config.get("sample_from_anchor", is_dspark))


def _kind(checkpoint: HeadCheckpoint) -> str:
    """Which of the three it is, by its tensors first."""
    if checkpoint.first_match(r"(markov|confidence)_head\."):
        return DSPARK
    parts = r"candidate_selector\.|layers\.\d+\.(attention|mlp)_conv\."
    return DFLASH2 if checkpoint.first_match(parts) or _has_name(checkpoint, "dflash2") else DFLASH


def _has_name(checkpoint: HeadCheckpoint, *names: str) -> bool:
    given = f"{checkpoint.speculators_type} {checkpoint.architecture}".lower()
    return any(name in given for name in names)


def _require_correction_shapes(
    checkpoint: HeadCheckpoint, tensors: TensorFiles, hidden_size: int, vocab_size: int, draft_vocab_size: int
) -> None:
    """ModelError when the Markov head or the confidence head lacks a part or has other sizes than the head."""
    expected: dict[str, tuple[int, ...]] = {}
    rank = 0
    if checkpoint.first_match(r"markov_head\."):
        require_tensors(tensors, ("markov.embeddings.weight", "markov.projection.weight"))
        rank = tensors.shape("markov.embeddings.weight")[-1]
        expected = {"embeddings": (vocab_size, rank), "projection": (draft_vocab_size, rank)}
        expected |= {"gate": (rank, hidden_size + rank), "joint": (3 * rank, 2 * rank + hidden_size)}
        expected = {f"markov.{part}.weight": shape for part, shape in expected.items()}
    _require_shapes(tensors, expected)
    confidence = "confidence.weight"
    if confidence in tensors and tensors.shape(confidence) not in ((1, hidden_size), (1, hidden_size + rank)):
        found = list(tensors.shape(confidence))
        raise ModelError(f"{tensors.source}: the confidence head {found} reads neither a state nor a state and a token")


def _require_shapes(tensors: TensorFiles, expected: Mapping[str, tuple[int, ...]]) -> None:
    """ModelError for a tensor of another shape. Missing ones are left to the caller."""
    for name, shape in expected.items():
        if name in tensors and tensors.shape(name) != shape:
            found = list(tensors.shape(name))
            raise ModelError(
                f"{tensors.source}: {name} has the shape {found}, but the rest of the head needs {list(shape)}"
            )


def _require_selector_shapes(tensors: TensorFiles, hidden_size: int, vocab_size: int) -> None:
    """ModelError when the candidate selector lacks a part or has other sizes than the head."""
    require_tensors(tensors, SELECTOR_PARTS)
    rank = (tensors.shape(SELECTOR_PARTS[0]) or (0,))[-1]
    shapes = ((vocab_size, rank), (vocab_size, rank), (rank, hidden_size))
    _require_shapes(tensors, dict(zip(SELECTOR_PARTS, shapes, strict=True)))


def _require_convolution_shapes(tensors: TensorFiles, dimensions: HeadDimensions, block_size: int) -> None:
    """ModelError when a convolution is missing or has another size, or more taps than a block has slots."""
    modules = [f"layers.{index}.{part}_conv" for index in range(dimensions.layers) for part in ("attention", "mlp")]
    require_tensors(tensors, (f"{module}.{part}" for module in modules for part in ("base_kernel", PROJECTION)))
    base, projection = (tensors.shape(f"{modules[0]}.{part}") for part in ("base_kernel", PROJECTION))
    taps, rows, width = base[1] if len(base) == 3 else 0, (projection or (0,))[0], dimensions.hidden_size
    groups = rows // (2 * taps) if taps else 0
    if taps > block_size or not groups or rows != 2 * taps * groups or width % groups:
        reason = f"{taps} taps and {rows} kernel numbers fit neither a block of {block_size} nor the size {width}"
        raise ModelError(f"{tensors.source}: the convolutions' {reason}")
    for module in modules:
        _require_shapes(tensors, {f"{module}.base_kernel": (2, taps, width), f"{module}.{PROJECTION}": (rows, width)})


def _hidden_state_layers(
    checkpoint: HeadCheckpoint, count: int, layers: int
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The layers whose states the head reads, the alternative, and the reason as text."""
    input_ids = checkpoint.config.get("aux_hidden_state_layer_ids")
    ids = (
        input_ids
        or _setting(checkpoint, "target_layer_ids")
        or _evenly_spaced_layers(checkpoint.config.get("num_target_layers"), layers)
    )
    if ids is None:
        raise ModelError(f"{checkpoint.tensors.source}: fc reads {count} hidden states, but the config has no layers")
    if len(ids) != count:
        raise ModelError(f"{checkpoint.tensors.source}: the config has {len(ids)} layers ({ids}), but fc reads {count}")
    as_inputs, as_outputs = tuple(int(index) for index in ids), tuple(int(index) + 1 for index in ids)
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
    if _kind(checkpoint) == DFLASH2 and "d2t" in checkpoint.tensors:
        return "DFlash-2 with a draft vocabulary"
    changed = [key for key, neutral in NEUTRAL_VALUES.items() if _setting(checkpoint, key) not in (None, neutral)]
    for key in [*changed, *(key for key in UNSUPPORTED_KEYS if _setting(checkpoint, key))]:
        return f"DFlash's {key} = {_setting(checkpoint, key)}"
    if (projector := _setting(checkpoint, "projector_type")) not in (None, "dflash"):
        return f"a DFlash with the projector {projector}"
    if checkpoint.first_match(r"markov_head\.joint_proj\.") and not _samples_from_anchor(checkpoint):
        return "DSpark's recurrent Markov head with slots that predict their own position"
    if _has_name(checkpoint, "gemma4dspark", "dsv4"):
        return f"the layers of {checkpoint.architecture}"
    if _setting(checkpoint, "mask_token_id") is None:
        return "the config has no mask_token_id"
    return None


def _setting(checkpoint: HeadCheckpoint, key: str) -> Any:
    """A setting from z-lab's `dflash_config`, or from the top level of the config."""
    nested: Mapping[str, Any] = checkpoint.config.get("dflash_config") or {}
    return nested[key] if nested.get(key) is not None else checkpoint.config.get(key)
