"""EAGLE-3: `fc` over several taps, a first layer that reads pairs, and mostly a draft vocabulary of its own.

SafeAILab, AngelSlim, SpecForge, vLLM's speculators, DeepSpec and ModelOpt save nearly the same tensors and mean other
things by the same keys of a config; what each means is said here once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.heads.formats.head_checkpoint import (
    HeadCheckpoint,
    dimensions_from_tensors,
    layer_tensor_names,
    require_tensors,
    unsupported_layer_reason,
)
from specchat.heads.spec import DEFAULT_TRAINED_LENGTH, EAGLE3, HeadSpec, Wiring
from specchat.models.tensor_files import TensorFiles

TENSOR_NAMES = {
    "midlayer.input_layernorm.": "embedding_norm.",
    "midlayer.hidden_norm.": "feature_norm.",
    "midlayer.": "layers.0.",
    "layers.0.input_layernorm.": "embedding_norm.",
    "layers.0.hidden_norm.": "feature_norm.",
} | {
    name: name
    for name in ("layers.", "fc.", "fc_norm.", "input_norm.", "norm.", "lm_head.", "embed_tokens.", "d2t", "t2d")
}
ANGELSLIM_ROPE_THETA = 10000.0  # AngelSlim's trainer turned with it whatever its config said


@dataclass(frozen=True)
class _HiddenStateLayers:
    """Which states are read; None are EAGLE-3's own. With the reading that a self-test must rule out, and why."""

    layers: tuple[int, ...] | None
    alternative: tuple[int, ...] | None
    reason: str


def detect_eagle3(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """EAGLE-3: `midlayer.*`, or `layers.0.*` with a norm of its own for the feature."""
    layer = "midlayer" if "midlayer.self_attn.q_proj.weight" in checkpoint.tensors else "layers.0"
    if (
        f"{layer}.hidden_norm.weight" not in checkpoint.tensors
        or f"{layer}.self_attn.q_proj.weight" not in checkpoint.tensors
    ):
        return None
    tensors, name = checkpoint.with_canonical_names(TENSOR_NAMES), f"{_publisher(checkpoint, layer)} EAGLE-3"
    what = f"{layer}.hidden_norm beside {checkpoint.describe_shape(f'{layer}.self_attn.q_proj.weight')}: a layer over pairs"
    if trouble := _unsupported_reason(checkpoint):
        return HeadSpec(EAGLE3, name, tensors, (what,), unsupported_reason=trouble)
    require_tensors(tensors, ("fc.weight", *_required_norms(checkpoint)))
    width, read = checkpoint.matrix_shape("fc.weight")
    reads, count = _check_fc_shape(checkpoint, width, read)
    config, taps = checkpoint.text_config, _hidden_state_layers(checkpoint, count)
    block, warnings = dimensions_from_tensors(tensors, config, width)
    require_tensors(tensors, layer_tensor_names(block.layers))
    tensors, output = _with_lm_head(checkpoint, tensors)
    rope, turning = _rope(checkpoint)
    vocabulary = _target_vocab_size(checkpoint, tensors)
    embeddings = "its own" if "embed_tokens.weight" in tensors else "those of the target"
    spec = HeadSpec(
        kind=EAGLE3,
        format=name,
        tensors=_without_output_norm(checkpoint, tensors),
        evidence=(
            what,
            f"{checkpoint.describe_shape('fc.weight')}: {count} taps of width {reads}; {taps.reason}",
            f"embeddings are {embeddings}; {output}",
            turning,
        ),
        warnings=tuple(warnings),
        unsupported_reason=unsupported_layer_reason(config, rope),
        dimensions=block,
        wiring=Wiring(
            residual_is_normed=bool(checkpoint.config.get("norm_before_residual")),
            feeds_back_normed=bool(checkpoint.speculators_type and checkpoint.config.get("norm_output")),
        ),
        rope=rope,
        hidden_state_layers=taps.layers,
        target_hidden_size=reads,
        target_vocab_size=vocabulary,
        draft_vocab_size=tensors.shape("d2t")[0] if "d2t" in tensors else vocabulary,
        context_window=int(config.get("max_position_embeddings") or DEFAULT_TRAINED_LENGTH),
        target_layers=checkpoint.config.get("num_target_layers"),
    )
    spec = _with_checked_draft_vocab(spec)
    return spec.with_variants(replace(spec, taps=taps.alternative)) if taps.alternative else spec


def _check_fc_shape(checkpoint: HeadCheckpoint, width: int, read: int) -> tuple[int, int]:
    """How wide a tap is, and how many `fc` reads; ModelError when what stands around `fc` does not agree with it."""
    reads = int(checkpoint.config.get("target_hidden_size") or width)
    if read % reads:
        raise ModelError(
            f"{checkpoint.tensors.source}: {checkpoint.describe_shape('fc.weight')} is no whole number of states of width {reads}"
        )
    layer = "midlayer" if "midlayer.self_attn.q_proj.weight" in checkpoint.tensors else "layers.0"
    _rows, pair = checkpoint.matrix_shape(f"{layer}.self_attn.q_proj.weight")
    if any(f"fc_norm.{index}.weight" in checkpoint.tensors for index in range(read // reads)):
        require_tensors(checkpoint.tensors, [f"fc_norm.{index}.weight" for index in range(read // reads)])
    if pair != 2 * width:
        raise ModelError(
            f"{checkpoint.tensors.source}: fc gives {width} numbers, but the first layer reads pairs of {pair}"
        )
    return reads, read // reads


def _with_checked_draft_vocab(spec: HeadSpec) -> HeadSpec:
    """The same, with a draft vocabulary that was checked; ModelError when it cannot be one."""
    if "d2t" in spec.tensors and torch.equal(spec.draft_to_target_ids(), spec.tensors.read_tensor("d2t").long()):
        return replace(spec, warnings=(*spec.warnings, "d2t holds ids and not offsets, as t2d shows"))
    return spec


def _required_norms(checkpoint: HeadCheckpoint) -> list[str]:
    """ModelOpt says which of them it left out; nobody else does leave one out."""
    said = _eagle_config(checkpoint)
    keys = {"embedding_norm.weight": "use_input_layernorm_in_first_layer", "norm.weight": "use_last_layernorm"}
    return [name for name, key in keys.items() if said.get(key) is not False]


def _publisher(checkpoint: HeadCheckpoint, layer: str) -> str:
    """Whose EAGLE-3 it is; the tensors of all of them are alike."""
    if checkpoint.speculators_type:
        return "speculators"
    if checkpoint.architecture in ("Qwen3Eagle3Model", "Gemma4Eagle3Model"):
        return "DeepSpec"
    if checkpoint.architecture == "Eagle3LlamaForCausalLM":
        return "AngelSlim"
    keys = ("fc_norm", "norm_output", "eagle_config")
    return "SpecForge" if any(key in checkpoint.config for key in keys) and layer == "midlayer" else "SafeAILab"


def _hidden_state_layers(checkpoint: HeadCheckpoint, count: int) -> _HiddenStateLayers:
    """Whether a config counts the inputs of layers or their outputs depends on whose it is."""
    shifted = checkpoint.config.get("target_layer_ids")
    nested = _eagle_config(checkpoint).get("eagle_aux_hidden_state_layer_ids")
    ids = shifted or nested or checkpoint.config.get("eagle_aux_hidden_state_layer_ids")
    if not ids:
        if count != 3:
            raise ModelError(f"{checkpoint.tensors.source}: {count} taps, and the config does not say which")
        return _HiddenStateLayers(None, None, "its config names none, so they are EAGLE-3's own three")
    if len(ids) != count:
        raise ModelError(f"{checkpoint.tensors.source}: the config names {len(ids)} taps ({ids}), but fc reads {count}")
    said, after = tuple(int(index) for index in ids), tuple(int(index) + 1 for index in ids)
    if shifted or (not checkpoint.speculators_type and said[0] == 1):
        return _HiddenStateLayers(after, said, f"its config names {list(said)}, outputs of those layers")
    return _HiddenStateLayers(said, after, f"its config names {list(said)}, inputs of those layers")


def _rope(checkpoint: HeadCheckpoint) -> tuple[Rope, str]:
    """How it turns, and why, in words. A head has a base of its own: never the target's."""
    rope = Rope.from_config(checkpoint.text_config, ANGELSLIM_ROPE_THETA)
    is_plain = rope.rope_type == "default" and "mrope_section" not in rope.scaling
    if checkpoint.architecture == "Eagle3LlamaForCausalLM" and is_plain:
        old = replace(rope, theta=ANGELSLIM_ROPE_THETA)
        return old, "rope base 10000: its trainer took no other, whatever the config says"
    says = "rope_theta" in checkpoint.text_config or "rope_theta" in rope.scaling
    return rope, f"rope base {rope.theta:g}, {'as its config says' if says else 'its config says none'}"


def _target_vocab_size(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> int:
    """Tokens of the target: what a table of them says before what the config says."""
    for name in ("t2d", "embed_tokens.weight", *(() if "d2t" in tensors else ("lm_head.weight",))):
        if name in tensors:
            return tensors.shape(name)[0]
    return int(checkpoint.text_config.get("vocab_size") or 0)


def _with_lm_head(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> tuple[TensorFiles, str]:
    """The tensors with an output matrix where the head has one, be it its own embeddings."""
    if "lm_head.weight" in tensors:
        return tensors, f"its own output matrix {list(tensors.shape('lm_head.weight'))}"
    if checkpoint.text_config.get("tie_word_embeddings") and "embed_tokens.weight" in tensors:
        names = {name: name for name in tensors.locations} | {"lm_head.weight": "embed_tokens.weight"}
        return tensors.renamed(names), "its output matrix is its embeddings"
    if "d2t" in tensors:
        raise ModelError(f"{tensors.source}: a part of the head is missing: lm_head.weight, which d2t belongs to")
    return tensors, "its output matrix is the target's"


def _without_output_norm(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> TensorFiles:
    """SpecForge's `norm_output: false` means no norm before the output; in speculators the name means the feedback."""
    if checkpoint.speculators_type or checkpoint.config.get("norm_output", True):
        return tensors
    return tensors.renamed({name: name for name in tensors.locations if name != "norm.weight"})


def _unsupported_reason(checkpoint: HeadCheckpoint) -> str | None:
    """What is recognised and not computed yet."""
    said = _eagle_config(checkpoint)
    if checkpoint.architecture == "Gemma4Eagle3Model":
        return "Gemma-4's attention, whose values are its keys, normed"
    for key in ("use_mtp_layernorm", "next_layer_regular", "parallel_draft_step"):
        if said.get(key):
            return f"ModelOpt's {key}"
    if said.get("use_aux_hidden_state") is False:
        return "a single tap (use_aux_hidden_state is false)"
    if checkpoint.first_match("additional_layers") or checkpoint.first_match(r"layers\.[1-9]\d*\.hidden_norm"):
        return "further layers that read the feature"
    return None


def _eagle_config(checkpoint: HeadCheckpoint) -> Mapping[str, Any]:
    return checkpoint.config.get("eagle_config") or {}
