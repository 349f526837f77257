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
from specchat.heads.formats.checkpoint_files import Found, block_of, layer_names, layer_trouble, missing
from specchat.heads.spec import EAGLE3, TRAINED, HeadSpec, Wiring
from specchat.models.tensor_files import TensorFiles

NAMES = {
    "midlayer.input_layernorm.": "embedding_norm.",
    "midlayer.hidden_norm.": "feature_norm.",
    "midlayer.": "layers.0.",
    "layers.0.input_layernorm.": "embedding_norm.",
    "layers.0.hidden_norm.": "feature_norm.",
} | {
    name: name
    for name in ("layers.", "fc.", "fc_norm.", "input_norm.", "norm.", "lm_head.", "embed_tokens.", "d2t", "t2d")
}
BASE_OF_OLD_TRAINERS = 10000.0  # AngelSlim's trainer turned with it whatever its config said


@dataclass(frozen=True)
class _Taps:
    """Which states are read; None are EAGLE-3's own. With the reading that a self-test must rule out, and why."""

    chosen: tuple[int, ...] | None
    other: tuple[int, ...] | None
    why: str


def third_kind(found: Found) -> HeadSpec | None:
    """EAGLE-3: `midlayer.*`, or `layers.0.*` with a norm of its own for the feature."""
    layer = "midlayer" if "midlayer.self_attn.q_proj.weight" in found.tensors else "layers.0"
    if f"{layer}.hidden_norm.weight" not in found.tensors or f"{layer}.self_attn.q_proj.weight" not in found.tensors:
        return None
    tensors, name = found.renamed(NAMES), f"{_dialect(found, layer)} EAGLE-3"
    what = f"{layer}.hidden_norm beside {found.shape(f'{layer}.self_attn.q_proj.weight')}: a layer over pairs"
    if trouble := _trouble(found):
        return HeadSpec(EAGLE3, name, tensors, (what,), unsupported=trouble)
    missing(tensors, ("fc.weight", *_norms_that_must_be_there(found)))
    width, read = found.matrix("fc.weight")
    reads, count = _taps_in(found, width, read)
    config, taps = found.text_config, _taps(found, count)
    block, warnings = block_of(tensors, config, width)
    missing(tensors, layer_names(block.layers))
    tensors, output = _with_output(found, tensors)
    rope, turning = _rope(found)
    vocabulary = _vocabulary(found, tensors)
    embeddings = "its own" if "embed_tokens.weight" in tensors else "those of the target"
    spec = HeadSpec(
        kind=EAGLE3,
        format=name,
        tensors=_without_output_norm(found, tensors),
        evidence=(
            what,
            f"{found.shape('fc.weight')}: {count} taps of width {reads}; {taps.why}",
            f"embeddings are {embeddings}; {output}",
            turning,
        ),
        warnings=tuple(warnings),
        unsupported=layer_trouble(config, rope),
        block=block,
        wiring=Wiring(
            residual_is_normed=bool(found.config.get("norm_before_residual")),
            feeds_normed=bool(found.speculators_type and found.config.get("norm_output")),
        ),
        rope=rope,
        taps=taps.chosen,
        reads=reads,
        vocabulary=vocabulary,
        drafted=tensors.shape("d2t")[0] if "d2t" in tensors else vocabulary,
        window=int(config.get("max_position_embeddings") or TRAINED),
        target_layers=found.config.get("num_target_layers"),
    )
    spec = _with_ids_looked_at(spec)
    return spec.also(replace(spec, taps=taps.other)) if taps.other else spec


def _taps_in(found: Found, width: int, read: int) -> tuple[int, int]:
    """How wide a tap is, and how many `fc` reads; ModelError when what stands around `fc` does not agree with it."""
    reads = int(found.config.get("target_hidden_size") or width)
    if read % reads:
        raise ModelError(
            f"{found.tensors.source}: {found.shape('fc.weight')} is no whole number of states of width {reads}"
        )
    layer = "midlayer" if "midlayer.self_attn.q_proj.weight" in found.tensors else "layers.0"
    _rows, pair = found.matrix(f"{layer}.self_attn.q_proj.weight")
    if any(f"fc_norm.{index}.weight" in found.tensors for index in range(read // reads)):
        missing(found.tensors, [f"fc_norm.{index}.weight" for index in range(read // reads)])
    if pair != 2 * width:
        raise ModelError(f"{found.tensors.source}: fc gives {width} numbers, but the first layer reads pairs of {pair}")
    return reads, read // reads


def _with_ids_looked_at(spec: HeadSpec) -> HeadSpec:
    """The same, with a draft vocabulary that was checked; ModelError when it cannot be one."""
    if "d2t" in spec.tensors and torch.equal(spec.ids(), spec.tensors.read("d2t").long()):
        return replace(spec, warnings=(*spec.warnings, "d2t holds ids and not offsets, as t2d shows"))
    return spec


def _norms_that_must_be_there(found: Found) -> list[str]:
    """ModelOpt says which of them it left out; nobody else does leave one out."""
    said = _eagle_config(found)
    keys = {"embedding_norm.weight": "use_input_layernorm_in_first_layer", "norm.weight": "use_last_layernorm"}
    return [name for name, key in keys.items() if said.get(key) is not False]


def _dialect(found: Found, layer: str) -> str:
    """Whose EAGLE-3 it is; the tensors of all of them are alike."""
    if found.speculators_type:
        return "speculators"
    if found.architecture in ("Qwen3Eagle3Model", "Gemma4Eagle3Model"):
        return "DeepSpec"
    if found.architecture == "Eagle3LlamaForCausalLM":
        return "AngelSlim"
    keys = ("fc_norm", "norm_output", "eagle_config")
    return "SpecForge" if any(key in found.config for key in keys) and layer == "midlayer" else "SafeAILab"


def _taps(found: Found, count: int) -> _Taps:
    """Whether a config counts the inputs of layers or their outputs depends on whose it is."""
    shifted = found.config.get("target_layer_ids")
    nested = _eagle_config(found).get("eagle_aux_hidden_state_layer_ids")
    ids = shifted or nested or found.config.get("eagle_aux_hidden_state_layer_ids")
    if not ids:
        if count != 3:
            raise ModelError(f"{found.tensors.source}: {count} taps, and the config does not say which")
        return _Taps(None, None, "its config names none, so they are EAGLE-3's own three")
    if len(ids) != count:
        raise ModelError(f"{found.tensors.source}: the config names {len(ids)} taps ({ids}), but fc reads {count}")
    said, after = tuple(int(index) for index in ids), tuple(int(index) + 1 for index in ids)
    if shifted or (not found.speculators_type and said[0] == 1):
        return _Taps(after, said, f"its config names {list(said)}, outputs of those layers")
    return _Taps(said, after, f"its config names {list(said)}, inputs of those layers")


def _rope(found: Found) -> tuple[Rope, str]:
    """How it turns, and why, in words. A head has a base of its own: never the target's."""
    rope = Rope.of(found.text_config, BASE_OF_OLD_TRAINERS)
    is_plain = rope.kind == "default" and "mrope_section" not in rope.scaling
    if found.architecture == "Eagle3LlamaForCausalLM" and is_plain:
        old = replace(rope, theta=BASE_OF_OLD_TRAINERS)
        return old, "rope base 10000: its trainer took no other, whatever the config says"
    says = "rope_theta" in found.text_config or "rope_theta" in rope.scaling
    return rope, f"rope base {rope.theta:g}, {'as its config says' if says else 'its config says none'}"


def _vocabulary(found: Found, tensors: TensorFiles) -> int:
    """Tokens of the target: what a table of them says before what the config says."""
    for name in ("t2d", "embed_tokens.weight", *(() if "d2t" in tensors else ("lm_head.weight",))):
        if name in tensors:
            return tensors.shape(name)[0]
    return int(found.text_config.get("vocab_size") or 0)


def _with_output(found: Found, tensors: TensorFiles) -> tuple[TensorFiles, str]:
    """The tensors with an output matrix where the head has one, be it its own embeddings."""
    if "lm_head.weight" in tensors:
        return tensors, f"its own output matrix {list(tensors.shape('lm_head.weight'))}"
    if found.text_config.get("tie_word_embeddings") and "embed_tokens.weight" in tensors:
        names = {name: name for name in tensors.places} | {"lm_head.weight": "embed_tokens.weight"}
        return tensors.renamed(names), "its output matrix is its embeddings"
    if "d2t" in tensors:
        raise ModelError(f"{tensors.source}: a part of the head is missing: lm_head.weight, which d2t belongs to")
    return tensors, "its output matrix is the target's"


def _without_output_norm(found: Found, tensors: TensorFiles) -> TensorFiles:
    """SpecForge's `norm_output: false` means no norm before the output; in speculators the name means the feedback."""
    if found.speculators_type or found.config.get("norm_output", True):
        return tensors
    return tensors.renamed({name: name for name in tensors.places if name != "norm.weight"})


def _trouble(found: Found) -> str | None:
    """What is recognised and not computed yet."""
    said = _eagle_config(found)
    if found.architecture == "Gemma4Eagle3Model":
        return "Gemma-4's attention, whose values are its keys, normed"
    for key in ("use_mtp_layernorm", "next_layer_regular", "parallel_draft_step"):
        if said.get(key):
            return f"ModelOpt's {key}"
    if said.get("use_aux_hidden_state") is False:
        return "a single tap (use_aux_hidden_state is false)"
    if found.first("additional_layers") or found.first(r"layers\.[1-9]\d*\.hidden_norm"):
        return "further layers that read the feature"
    return None


def _eagle_config(found: Found) -> Mapping[str, Any]:
    return found.config.get("eagle_config") or {}
