"""The context length of a model, read from its config.json or GGUF file without loading it. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.paths import local_model_folder, read_json_object
from specchat.weights.gguf.gguf_preparation import find_prepared
from specchat.weights.gguf.gguf_sources import local_gguf

EMBEDDED = Path(__file__).parents[1] / "embedded" / "target"


def trained_context_window(source: str) -> int | None:
    """Return max_position_embeddings; None when the config lacks it or is not on this disk."""
    try:
        gguf = local_gguf(source)
        config = _gguf_config(gguf) if gguf else _config(source)
    except ModelError:
        return None  # loading says what is wrong
    text = config.get("text_config", config)
    length = text.get("max_position_embeddings") if isinstance(text, dict) else None
    return length if isinstance(length, int) and length > 0 else None


def _gguf_config(path: Path) -> dict[str, Any]:
    """The config of the prepared folder if there is one: the header of a GGUF file takes long, with its vocabulary."""
    if folder := find_prepared(path):
        return _config(str(folder))
    from specchat.weights.gguf.gguf_families import map_model
    from specchat.weights.gguf.gguf_file import read_gguf

    return map_model(read_gguf(path)).config


def _config(source: str) -> dict[str, Any]:
    folder = EMBEDDED if source == "embedded" else local_model_folder(source)
    return read_json_object(folder / "config.json") if folder else {}
