"""EAGLE-3: `fc` over hidden states of several layers, a first layer over pairs, and mostly a draft vocabulary.

SafeAILab, AngelSlim, SpecForge, vLLM's speculators, DeepSpec and ModelOpt save nearly the same tensors, but the same
config keys mean different things. This file has the meaning of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, inputs_and_outputs, require_tensors, with_layers
from specchat.drafters.heads.spec import EAGLE3, HeadSpec, Wiring
from specchat.errors import ModelError
from specchat.forward.llama.rope import Rope
from specchat.weights.tensor_files import TensorFiles

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
NO_NAMES: Mapping[str, str] = {}
ANGELSLIM_ROPE_THETA = 10000.0  # AngelSlim's trainer ignored the base in its config


@dataclass(frozen=True)
class _HiddenStateLayers:
    """The layers whose states the head reads (None: EAGLE-3's defaults), the alternative, and the reason as text."""

    layers: tuple[int, ...] | None
    alternative: tuple[int, ...] | None
    reason: str


def detect_eagle3(checkpoint: HeadCheckpoint, more_names: Mapping[str, str] = NO_NAMES) -> HeadSpec | None:
    """EAGLE-3: `midlayer.*`, or `layers.0.*` with a norm of its own for the hidden state.

    `more_names`: of further tensors that a kind with those of EAGLE-3 has; the values are canonical.
    """
    layer = _first_layer(checkpoint)
    q_proj = f"{layer}.self_attn.q_proj.weight"
    if f"{layer}.hidden_norm.weight" not in checkpoint.tensors or q_proj not in checkpoint.tensors:
        return None
    tensors = checkpoint.with_canonical_names({**TENSOR_NAMES, **more_names})
    name = f"{_publisher(checkpoint, layer)} EAGLE-3"
    recognized_by = f"{layer}.hidden_norm and {checkpoint.describe_shape(q_proj)}: a layer over pairs"
    if reason := _unsupported_reason(checkpoint):
        return HeadSpec(EAGLE3, name, tensors, (recognized_by,), unsupported_reason=reason)
    require_tensors(tensors, ("fc.weight", *_required_norms(checkpoint)))
    hidden_size, fc_inputs = checkpoint.matrix_shape("fc.weight")
    state_size, count = _check_fc_shape(checkpoint, hidden_size, fc_inputs)
    needed = _hidden_state_layers(checkpoint, count)
    (tensors, lm_head), (rope, rope_evidence) = _with_lm_head(checkpoint, tensors), _rope(checkpoint)
    embeddings = "its own" if "embed_tokens.weight" in tensors else "the target's"
    evidence = (
        recognized_by,
        f"{checkpoint.describe_shape('fc.weight')}: {count} hidden states of size {state_size}; {needed.reason}",
        f"embeddings are {embeddings}; {lm_head}",
        rope_evidence,
    )
    wiring = Wiring(
        residual_is_normed=bool(checkpoint.config.get("norm_before_residual")),
        feeds_back_normed=bool(checkpoint.speculators_type and checkpoint.config.get("norm_output")),
    )
    tensors = _without_output_norm(checkpoint, tensors)
    spec = HeadSpec(EAGLE3, name, tensors, evidence, wiring=wiring, target_hidden_size=state_size, network=EagleHead)
    spec = replace(with_layers(checkpoint, spec, hidden_size, rope), hidden_state_layers=needed.layers)
    spec = _with_checked_draft_vocab(spec)
    return spec.with_variants(replace(spec, hidden_state_layers=needed.alternative)) if needed.alternative else spec


def _first_layer(checkpoint: HeadCheckpoint) -> str:
    return "midlayer" if "midlayer.self_attn.q_proj.weight" in checkpoint.tensors else "layers.0"


def _check_fc_shape(checkpoint: HeadCheckpoint, hidden_size: int, fc_inputs: int) -> tuple[int, int]:
    """The size of a hidden state, and how many `fc` reads; ModelError when other tensors do not fit to `fc`."""
    state_size, source = int(checkpoint.config.get("target_hidden_size") or hidden_size), checkpoint.tensors.source
    if fc_inputs % state_size:
        shape = checkpoint.describe_shape("fc.weight")
        raise ModelError(f"{source}: the inputs of {shape} are not a multiple of the hidden size {state_size}")
    norms = [f"fc_norm.{index}.weight" for index in range(fc_inputs // state_size)]
    if any(name in checkpoint.tensors for name in norms):
        require_tensors(checkpoint.tensors, norms)
    _rows, pair = checkpoint.matrix_shape(f"{_first_layer(checkpoint)}.self_attn.q_proj.weight")
    if pair != 2 * hidden_size:
        raise ModelError(f"{source}: fc has {hidden_size} outputs, but the first layer reads pairs of {pair} numbers")
    return state_size, fc_inputs // state_size


def _with_checked_draft_vocab(spec: HeadSpec) -> HeadSpec:
    """The same head; ModelError when the table of its draft vocabulary is invalid, a warning when it has ids."""
    if "d2t" in spec.tensors and torch.equal(spec.draft_to_target_ids(), spec.tensors.read_tensor("d2t").long()):
        return replace(spec, warnings=(*spec.warnings, "d2t has ids instead of offsets, as t2d shows"))
    return spec


def _required_norms(checkpoint: HeadCheckpoint) -> list[str]:
    """The norms that must exist; only ModelOpt's config can leave them out."""
    config = _eagle_config(checkpoint)
    keys = {"embedding_norm.weight": "use_input_layernorm_in_first_layer", "norm.weight": "use_last_layernorm"}
    return [name for name, key in keys.items() if config.get(key) is not False]


def _publisher(checkpoint: HeadCheckpoint, layer: str) -> str:
    """The publisher, by the config; the tensors are the same."""
    if checkpoint.speculators_type:
        return "speculators"
    if checkpoint.architecture in ("Qwen3Eagle3Model", "Gemma4Eagle3Model"):
        return "DeepSpec"
    if checkpoint.architecture == "Eagle3LlamaForCausalLM":
        return "AngelSlim"
    keys = ("fc_norm", "norm_output", "eagle_config")
    return "SpecForge" if any(key in checkpoint.config for key in keys) and layer == "midlayer" else "SafeAILab"


def _hidden_state_layers(checkpoint: HeadCheckpoint, count: int) -> _HiddenStateLayers:
    """Some publishers count the inputs of layers, others their outputs."""
    output_ids = checkpoint.config.get("target_layer_ids")
    nested = _eagle_config(checkpoint).get("eagle_aux_hidden_state_layer_ids")
    ids = output_ids or nested or checkpoint.config.get("eagle_aux_hidden_state_layer_ids")
    if not ids and count == 3:
        return _HiddenStateLayers(None, None, "the config has no layers, so they are EAGLE-3's defaults")
    as_inputs, as_outputs = inputs_and_outputs(checkpoint, ids or None, count)
    if output_ids or (not checkpoint.speculators_type and as_inputs[0] == 1):
        return _HiddenStateLayers(as_outputs, as_inputs, f"the config has {list(as_inputs)}, outputs of these layers")
    return _HiddenStateLayers(as_inputs, as_outputs, f"the config has {list(as_inputs)}, inputs of these layers")


def _rope(checkpoint: HeadCheckpoint) -> tuple[Rope, str]:
    """The rotary embedding, and the reason as text. A head never uses the base of its target."""
    rope = Rope.from_config(checkpoint.text_config, ANGELSLIM_ROPE_THETA)
    is_plain = rope.rope_type == "default" and "mrope_section" not in rope.scaling
    if checkpoint.architecture == "Eagle3LlamaForCausalLM" and is_plain:
        rope = replace(rope, theta=ANGELSLIM_ROPE_THETA)
        return rope, "RoPE base 10000: AngelSlim's trainer ignores its config"
    is_configured = "rope_theta" in checkpoint.text_config or "rope_theta" in rope.scaling
    return rope, f"RoPE base {rope.theta:g}, {'from the config' if is_configured else 'the default'}"


def _with_lm_head(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> tuple[TensorFiles, str]:
    """The tensors, with the embeddings as LM head if the two are tied, and a text about the LM head."""
    if "lm_head.weight" in tensors:
        return tensors, f"its own LM head {list(tensors.shape('lm_head.weight'))}"
    if checkpoint.text_config.get("tie_word_embeddings") and "embed_tokens.weight" in tensors:
        names = {name: name for name in tensors.locations} | {"lm_head.weight": "embed_tokens.weight"}
        return tensors.renamed(names), "its LM head is tied to its embeddings"
    if "d2t" in tensors:
        raise ModelError(f"{tensors.source}: a part of the head is missing: lm_head.weight, which d2t needs")
    return tensors, "the LM head is the target's"


def _without_output_norm(checkpoint: HeadCheckpoint, tensors: TensorFiles) -> TensorFiles:
    """SpecForge's `norm_output: false` removes the final norm; in speculators the key is about the next draft step."""
    if checkpoint.speculators_type or checkpoint.config.get("norm_output", True):
        return tensors
    return tensors.renamed({name: name for name in tensors.locations if name != "norm.weight"})


def _unsupported_reason(checkpoint: HeadCheckpoint) -> str | None:
    config = _eagle_config(checkpoint)
    if checkpoint.architecture == "Gemma4Eagle3Model":
        return "Gemma-4's attention, whose values are its normalized keys"
    for key in ("use_mtp_layernorm", "next_layer_regular", "parallel_draft_step"):
        if config.get(key):
            return f"ModelOpt's {key}"
    if config.get("use_aux_hidden_state") is False:
        return "a single hidden state (use_aux_hidden_state is false)"
    if checkpoint.first_match("additional_layers") or checkpoint.first_match(r"layers\.[1-9]\d*\.hidden_norm"):
        return "more than one layer that reads the hidden state"
    return None


def _eagle_config(checkpoint: HeadCheckpoint) -> Mapping[str, Any]:
    return checkpoint.config.get("eagle_config") or {}
