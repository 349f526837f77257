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
from specchat.heads.formats.checkpoint_files import Found, block_of, layer_names, layer_trouble, missing
from specchat.heads.spec import DFLASH, TRAINED, HeadSpec, Slots
from specchat.models.tensor_files import TensorFiles

NAMES = {"hidden_norm.": "feature_norm."} | {
    name: name for name in ("layers.", "fc.", "norm.", "lm_head.", "embed_tokens.", "d2t", "t2d")
}
USUAL_BLOCK = 16  # of z-lab's, where a config says none
UNKNOWN = ("final_logit_softcapping", "shift_label", "is_causal", "pure_draft_prefix_len")
PLAIN = {"output_multiplier": 1.0, "input_embedding_scale": 1.0}  # what changes nothing


def dflash(found: Found) -> HeadSpec | None:
    """A head that fills a block, by the norm behind its `fc`, or by its name."""
    says = (found.speculators_type or "", found.architecture.lower())
    has_block = "hidden_norm.weight" in found.tensors and "fc.weight" in found.tensors
    if not has_block and "dflash_config" not in found.config and not any("dflash" in word for word in says):
        return None
    name = f"{'speculators' if found.speculators_type else 'z-lab'} DFlash"
    if trouble := _trouble(found):
        return HeadSpec(DFLASH, name, found.tensors, ("its name, or a norm behind fc",), unsupported=trouble)
    tensors, config = found.renamed(NAMES), found.text_config
    missing(tensors, ("fc.weight", "feature_norm.weight", "norm.weight", "layers.0.input_layernorm.weight"))
    width, read = found.matrix("fc.weight")
    if read % width:
        raise ModelError(f"{found.tensors.source}: {found.shape('fc.weight')} is no whole number of states of {width}")
    block, warnings = block_of(tensors, config, width)
    missing(tensors, layer_names(block.layers))
    rope, vocabulary = Rope.of(config), _vocabulary(found, tensors)
    slots, (taps, other, why) = _slots(found, vocabulary), _taps(found, read // width, block.layers)
    output = "its own" if "lm_head.weight" in tensors else "the target's"
    spec = HeadSpec(
        kind=DFLASH,
        format=name,
        tensors=tensors,
        evidence=(
            f"hidden_norm behind {found.shape('fc.weight')}: {read // width} taps of width {width}; {why}",
            f"blocks of {slots.size} with token {slots.mask} as mask; its output matrix is {output}",
        ),
        warnings=tuple(warnings),
        unsupported=layer_trouble(config, rope),
        block=block,
        rope=rope,
        taps=taps,
        reads=width,
        vocabulary=vocabulary,
        drafted=tensors.shape("d2t")[0] if "d2t" in tensors else vocabulary,
        window=int(config.get("max_position_embeddings") or TRAINED),
        count=slots.size if slots.first_guesses else slots.size - 1,
        target_layers=found.config.get("num_target_layers"),
        slots=slots,
    )
    if "d2t" in tensors:
        missing(tensors, ("lm_head.weight",))
        spec.ids()
    return spec.also(replace(spec, taps=other))


def _slots(found: Found, vocabulary: int) -> Slots:
    size, mask = int(_said(found, "block_size") or USUAL_BLOCK), int(_said(found, "mask_token_id"))
    if size < 2:
        raise ModelError(f"{found.tensors.source}: block_size {size} leaves no place to guess")
    if mask < 0 or (vocabulary and mask >= vocabulary):
        raise ModelError(f"{found.tensors.source}: its mask is token {mask}, outside the vocabulary of {vocabulary}")
    is_of_speculators = found.speculators_type is not None
    return Slots(
        size,
        mask,
        first_guesses=bool(found.config.get("sample_from_anchor")),
        windows_from_start=is_of_speculators,
        windows_look_ahead=is_of_speculators and bool(found.config.get("sliding_window_non_causal")),
    )


def _taps(found: Found, count: int, layers: int) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The hidden states it reads, those of the other reading of its config, and why, in words."""
    inputs = found.config.get("aux_hidden_state_layer_ids")
    ids = inputs or _said(found, "target_layer_ids") or _spread(found.config.get("num_target_layers"), layers)
    if ids is None:
        raise ModelError(f"{found.tensors.source}: {count} taps, and the config does not say which")
    if len(ids) != count:
        raise ModelError(f"{found.tensors.source}: the config names {len(ids)} taps ({ids}), but fc reads {count}")
    said, after = tuple(int(index) for index in ids), tuple(int(index) + 1 for index in ids)
    if inputs:
        return said, after, f"its config names {list(said)}, inputs of those layers"
    return after, said, f"outputs of the layers {list(said)}"


def _spread(target_layers: int | None, layers: int) -> list[int] | None:
    """Where a config names none: evenly from the second layer to the fourth from the end, one for each of the head."""
    if target_layers is None:
        return None
    if layers == 1:
        return [target_layers // 2]
    return [round(1 + index * (target_layers - 4) / (layers - 1)) for index in range(layers)]


def _vocabulary(found: Found, tensors: TensorFiles) -> int:
    """Tokens of the target: what a table of them says before what the config says."""
    for name in ("t2d", "embed_tokens.weight", *(() if "d2t" in tensors else ("lm_head.weight",))):
        if name in tensors:
            return tensors.shape(name)[0]
    return int(found.text_config.get("vocab_size") or 0)


def _trouble(found: Found) -> str | None:
    """What is recognised and not computed yet."""
    if found.first("candidate_selector") or found.first(r"layers\.\d+\.(attention|mlp)_conv\."):
        return "DFlash-2's convolutions and candidate selector"
    changed = [key for key, usual in PLAIN.items() if _said(found, key) not in (None, usual)]
    for key in [*changed, *(key for key in UNKNOWN if _said(found, key))]:
        return f"DFlash's {key} = {_said(found, key)}"
    if _said(found, "projector_type") not in (None, "dflash"):
        return f"a DFlash with {_said(found, 'projector_type')} behind it"
    if _said(found, "mask_token_id") is None:
        return "its config does not say which token is its mask"
    return None


def _said(found: Found, key: str) -> Any:
    """A setting, in the table of its own that z-lab has for them or beside all others."""
    own: Mapping[str, Any] = found.config.get("dflash_config") or {}
    return own[key] if own.get(key) is not None else found.config.get(key)
