"""Whether a draft model or a head fits a target, from their config.json and tokenizer.json. Imports no torch.

Whatever these files leave open counts as a fit, and so does a folder that is not on this disk (None): loading reads
the tensors and reports what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specchat.hub.catalog import find_entry
from specchat.paths import read_json_object

RECOMMEND_HINT = "'specchat models recommend' names drafters that fit"


def embedded_draft_mismatch(target: Path | None, draft: Path | None) -> str:
    """Why the embedded draft model does not fit: it speaks the tokens of the embedded target, and those of a copy."""
    if target is None or draft is None:
        return ""
    ours, theirs = (read_json_object(folder / "tokenizer.json").get("model") for folder in (target, draft))
    return "" if ours == theirs else "its tokens are not those of the target"


def head_mismatch(target: Path | None, head: Path | None) -> str:
    """Why a head was not trained for a target of these sizes; "" when the configs agree."""
    if target is None or head is None:
        return ""
    target_sizes, head_sizes = _target_sizes(target), _head_sizes(head)
    for name, size in head_sizes.items():
        if name in target_sizes and size != target_sizes[name]:
            return f"it is for a target with {name} {size}, and this one has {target_sizes[name]}"
    return ""


def drafters_that_fit(target: str) -> str:
    """What to use instead: the published drafters of a target of the catalog, or where to look for one."""
    entry = find_entry(Path(target).name) or find_entry(target)
    published = [*(head.id for head in entry.usable_heads), *entry.draft_models] if entry else []
    return f"{published[0]} fits ('specchat models recommend' names more)" if published else RECOMMEND_HINT


def _target_sizes(folder: Path) -> dict[str, int]:
    config = read_json_object(folder / "config.json")
    text = config.get("text_config")
    return _sizes(text if isinstance(text, dict) else config)


def _head_sizes(head: Path) -> dict[str, int]:
    """The sizes of the target that a head names in its config; heads of other widths have `target_hidden_size`."""
    config = read_json_object((head if head.is_dir() else head.parent) / "config.json")
    layers = config.get("transformer_layer_config")
    sizes = _sizes({**config, **layers} if isinstance(layers, dict) else config)
    if isinstance(width := config.get("target_hidden_size"), int):
        sizes["hidden_size"] = width
    return sizes


def _sizes(config: Mapping[str, Any]) -> dict[str, int]:
    names = ("hidden_size", "vocab_size")
    return {name: config[name] for name in names if isinstance(config.get(name), int)}
