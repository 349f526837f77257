"""Where specchat keeps its files on this machine. Imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "SPECCHAT_CACHE"


def cache_folder() -> Path:
    """The folder of measurements and compiled code.

    `SPECCHAT_CACHE` names it; else it is beside the engine of `SPECCHAT_RUNTIME`, else the user's cache folder.
    """
    if chosen := os.environ.get(CACHE_VARIABLE) or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("specchat", appauthor=False)
