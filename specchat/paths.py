"""The folder of specchat's cached files, and how a file is written there. Imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "SPECCHAT_CACHE"


def write_atomically(path: Path, text: str) -> None:
    """Write a file, and its folder if it is missing; a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def cache_folder() -> Path:
    """The folder of measurements and compiled code.

    It is `SPECCHAT_CACHE` if set, else `SPECCHAT_RUNTIME`, else the user's cache folder.
    """
    if folder := os.environ.get(CACHE_VARIABLE) or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(folder)
    from platformdirs import user_cache_path

    return user_cache_path("specchat", appauthor=False)
