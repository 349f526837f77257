"""The context length of a model, read from its config.json or GGUF file without loading it. Imports no torch."""

from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.paths import local_model_folder, read_text_config
from specchat.weights.gguf.gguf_preparation import find_prepared
from specchat.weights.gguf.gguf_sources import local_gguf
from specchat.weights.load_options import EMBEDDED


def trained_context_window(source: str) -> int | None:
    """Return max_position_embeddings; None when the config lacks it or is not on this disk."""
    try:
        gguf = local_gguf(source)
        folder = find_prepared(gguf) if gguf else _folder(source)
        config = read_text_config(folder) if folder else _gguf_config(gguf) if gguf else {}
    except ModelError:
        return None  # loading says what is wrong
    length = config.get("max_position_embeddings")
    return length if isinstance(length, int) and length > 0 else None


def _folder(source: str) -> Path | None:
    return EMBEDDED / "target" if source == "embedded" else local_model_folder(source)


def _gguf_config(path: Path) -> dict[str, Any]:
    """The config in the header, which takes long, with its vocabulary."""
    from specchat.weights.gguf.gguf_families import map_model
    from specchat.weights.gguf.gguf_file import read_gguf

    return map_model(read_gguf(path)).config
