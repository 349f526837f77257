"""A folder or a file becomes one `HeadSpec`: recognised by its tensors first and its config second.

The order of the table below matters: the most telling mark is asked for first. Reads names, shapes and the table of the
draft vocabulary; weights stay where they are until somebody loads the head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.heads.formats.dflash_format import detect_dflash
from specchat.heads.formats.eagle1_format import detect_eagle1
from specchat.heads.formats.eagle3_format import detect_eagle3
from specchat.heads.formats.head_checkpoint import HeadCheckpoint
from specchat.heads.formats.medusa_format import detect_hydra, detect_medusa
from specchat.heads.formats.mtp_format import detect_mtp
from specchat.heads.formats.unsupported import (
    detect_assistant,
    detect_block_drafter,
    detect_early_exit,
    detect_other_speculators,
)
from specchat.heads.spec import HeadSpec, TargetDimensions
from specchat.models.fetch import fetch_from_hub
from specchat.models.tensor_files import PICKLE_SUFFIXES, TensorFiles

EMBEDDED = Path(__file__).parents[1] / "embedded"
HEAD_DETECTORS = (
    detect_hydra, detect_medusa, detect_mtp, detect_block_drafter, detect_dflash, detect_eagle3, detect_eagle1, detect_other_speculators, detect_assistant, detect_early_exit,
)  # fmt: skip


def find_head(source: str) -> Path:
    """The folder or file of a head: `embedded/eagle3`, a local one, or a hub id, fetched or found in the cache."""
    embedded = EMBEDDED / source.removeprefix("embedded/")
    if source.startswith("embedded/") and embedded.is_dir():
        return embedded
    path = Path(source).expanduser()
    if path.exists():
        return path
    if source.count("/") != 1 or source.startswith((".", "/", "~", "embedded/")):
        raise ModelError(f"{source}: no such folder or file; give a head's folder, a hub id, or 'embedded/eagle3'")
    return fetch_from_hub(source, is_draft=True)


def inspect_head(source: Path) -> HeadSpec:
    """What head lies in this folder or file; ModelError when none does, or when it cannot be whole."""
    found = HeadCheckpoint(TensorFiles.from_files(source, _weight_files(source)), _config(source))
    try:
        for form in HEAD_DETECTORS:
            if spec := form(found):
                return spec
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{source}: config.json says what cannot be: {error}") from error
    raise ModelError(f"{source}: no head there: {_describe_contents(found)}")


def target_dimensions(folder: Path) -> TargetDimensions:
    """What heads must know of a target, from its config."""
    config = _config(folder)
    text = config.get("text_config") or config
    try:
        return TargetDimensions(int(text["hidden_size"]), int(text["num_hidden_layers"]), int(text["vocab_size"]))
    except KeyError as error:
        raise ModelError(f"{folder}: no model there that a head could fit: config.json has no {error}") from error


def _weight_files(source: Path) -> list[Path]:
    """The files that hold the tensors; safetensors are taken before pickles of the same."""
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise ModelError(f"{source}: no such folder or file")
    safe = sorted(source.glob("*.safetensors"))
    pickles = sorted(path for path in source.iterdir() if path.suffix in PICKLE_SUFFIXES)
    if not safe and not pickles:
        raise ModelError(f"{source}: no head there: neither *.safetensors nor *.bin nor *.pt")
    return safe or pickles


def _config(source: Path) -> Mapping[str, Any]:
    path = (source if source.is_dir() else source.parent) / "config.json"
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: cannot be read: not a table")
    return content


def _describe_contents(checkpoint: HeadCheckpoint) -> str:
    if checkpoint.first_match(r"(model\.)?layers\.0\.") or checkpoint.first_match(r"model\."):
        return "it looks like a whole language model; it can be a target, or a draft (--draft)"
    names = sorted(checkpoint.tensors.locations)
    return f"its tensors ({', '.join(names[:3])}, …) are of no kind that we know" if names else "its files are empty"
