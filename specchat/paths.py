"""The folder of specchat's cached files. Imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "SPECCHAT_CACHE"


def cache_folder() -> Path:
    """The folder of measurements and compiled code.

    It is `SPECCHAT_CACHE` if set, else `SPECCHAT_RUNTIME`, else the user's cache folder.
    """
    if folder := os.environ.get(CACHE_VARIABLE) or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(folder)
    from platformdirs import user_cache_path

    return user_cache_path("specchat", appauthor=False)
