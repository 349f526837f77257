"""The folders of cached files and of downloaded models, and how files are read and written there.

Files that front ends and the engine process share must not depend on HOME or XDG variables: the engine process does
not inherit them. Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

CACHE_VARIABLE = "SPECCHAT_CACHE"
MODELS_VARIABLE = "SPECCHAT_MODELS"
RUNTIME_VARIABLE = "SPECCHAT_RUNTIME"
STARTER_DRAFTERS = Path(__file__).parent / "starter_heads"  # heads and a draft model that are trained for the starter


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one when there is no such file, or something else in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_atomically(path: Path, text: str) -> None:
    """Write a file, and its folder if it is missing; a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def cache_folder() -> Path:
    """The folder of measurements and compiled code.

    It is `SPECCHAT_CACHE` if set, else `SPECCHAT_RUNTIME`, else in the home folder.
    """
    if folder := os.environ.get(CACHE_VARIABLE) or os.environ.get(RUNTIME_VARIABLE):
        return Path(folder)
    return home_folder() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "specchat"


def home_folder() -> Path:
    """The home folder from the user database; the environment has no effect."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container user without an entry
        return Path("/")


def data_folder() -> Path:
    """The folder of the history and of downloaded models, in the home folder."""
    base = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return home_folder() / base / "specchat"


def models_folder() -> Path:
    """The folder of models that do not come from a hub, which has its own cache.

    It is `SPECCHAT_MODELS` if set, else in `SPECCHAT_RUNTIME` if that is set, else in the home folder.
    """
    if folder := os.environ.get(MODELS_VARIABLE):
        return Path(folder).expanduser().absolute()
    runtime = os.environ.get(RUNTIME_VARIABLE)
    return (Path(runtime).absolute() if runtime else data_folder()) / "models"


def starter_folder() -> Path:
    """The folder of the starter model, which the package index has, whether it is there or not."""
    return models_folder() / "starter"


def starter_file() -> Path | None:
    """The GGUF file of the starter model; None when it is not on this disk."""
    return next(starter_folder().glob("*.gguf"), None)
