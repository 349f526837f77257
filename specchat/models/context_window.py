"""How long a text a model was made for, read from its folder while nothing is loaded. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EMBEDDED = Path(__file__).parents[1] / "embedded" / "target"


def trained_context_window(source: str) -> int | None:
    """The tokens that the config of a model names; None when it names none, or is not on this machine yet."""
    config = _config(source)
    text = config.get("text_config", config)
    longest = text.get("max_position_embeddings") if isinstance(text, dict) else None
    return longest if isinstance(longest, int) and longest > 0 else None


def _config(source: str) -> dict[str, Any]:
    folder = EMBEDDED if source == "embedded" else Path(source).expanduser()
    found = folder / "config.json" if folder.is_dir() else _cached_config_path(source)
    try:
        config = json.loads(found.read_text(encoding="utf-8")) if found else {}
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _cached_config_path(source: str) -> Path | None:
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(source, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
