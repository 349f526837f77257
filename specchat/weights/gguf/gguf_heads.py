"""Drafting heads in GGUF files: llama.cpp's names → those of the published checkpoints, which drafters know.

A model may have a layer that only drafts (MTP), `nextn` in the file, behind its last one. Knows names; reads nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

DRAFTING_LAYERS = "nextn_predict_layers"  # how many of the last layers only draft
NEXTN = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head_norm": "shared_head.norm"}
OWN_TABLES = {"embed_tokens": "embed_tokens", "shared_head_head": "shared_head.head"}  # else the target's
QWEN_KEY, OTHER_KEY = "mtp_num_hidden_layers", "num_nextn_predict_layers"  # of the published config.json
QWEN_PREFIX = "mtp."  # of the tensors in checkpoints of Qwen; others have the number of the layer
QWEN_NEXTN = {
    "eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head_norm": "norm",
}  # fmt: skip


def drafting_tensors(
    config: Mapping[str, Any], layer_names: Mapping[str, str], has_tensor: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Name in the file, and published name, of each tensor of the layer that drafts.

    None where a tensor of it is missing: some converters leave a part of it out, and the target needs none.
    """
    number, is_qwen = config["num_hidden_layers"], _is_qwen(config)
    stored, published = f"blk.{number}", QWEN_PREFIX if is_qwen else f"model.layers.{number}."
    layer, nextn = (f"{published}layers.0.", QWEN_NEXTN) if is_qwen else (published, NEXTN)
    names = {f"{stored}.nextn.{part}.weight": f"{published}{name}.weight" for part, name in nextn.items()}
    names |= {f"{stored}.{part}.weight": f"{layer}{name}.weight" for part, name in layer_names.items()}
    if all(map(has_tensor, names)):
        own = {f"{stored}.nextn.{part}.weight": f"{published}{name}.weight" for part, name in OWN_TABLES.items()}
        yield from names.items()
        yield from (each for each in own.items() if has_tensor(each[0]) and not is_qwen)


def drafting_config(config: Mapping[str, Any]) -> dict[str, int]:
    """What the config of a model says of its layer that drafts."""
    return {QWEN_KEY if _is_qwen(config) else OTHER_KEY: 1}


def has_drafting_layer(config: Mapping[str, Any]) -> bool:
    return bool(config.get(QWEN_KEY) or config.get(OTHER_KEY))


def _is_qwen(config: Mapping[str, Any]) -> bool:
    return str(config["model_type"]).startswith("qwen3")
