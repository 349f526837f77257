"""What `specchat tune` found out for these models on this machine: a layer between the defaults and the user's file.

One small TOML file for each pair of models and machine, in the cache folder. Its name is a hash of all that the numbers
depend on, so other models, another card, or weights that were replaced find no file of theirs and are not tuned at all.
A file that no profile could be made of counts for nothing: what is measured can be measured again. Imports no torch.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import sys
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from specchat.errors import ProfileError
from specchat.profile.keys import Models, Profile
from specchat.profile.toml_lines import read_toml
from specchat.profile.validation import SettingsSource, merge_sources

SOURCE_KIND = "tuned"
TUNED_TABLES = ("speculation", "orders")  # the tables that such a file may have
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
PACKAGE = Path(__file__).parents[1]


def tuned_source() -> SettingsSource:
    """The layer as a source that waits for the models: what it wants depends on what the other sources settle on."""
    return SettingsSource(SOURCE_KIND, {}, lambda _path: "", resolve_for=tuned_source_for)


def tuned_source_for(profile: Profile) -> SettingsSource | None:
    """What was measured for the models of this profile on this machine; None when nothing was, or nothing sound."""
    if not tuned_folder().is_dir():
        return None
    path = tuned_path(profile)
    try:
        file = read_toml(path)
        source = file.source(SOURCE_KIND)
        merge_sources(Profile(), [source])
    except ProfileError:
        return None
    return source if set(file.tables) <= set(TUNED_TABLES) else None


def tuned_path(profile: Profile) -> Path:
    """Where the file for these models and this machine is, or would be."""
    spelled = json.dumps(tuning_key(profile), sort_keys=True)
    return tuned_folder() / f"{blake2b(spelled.encode(), digest_size=12).hexdigest()}.toml"


def tuned_folder() -> Path:
    """Where SPECCHAT_CACHE says, beside a test's host, or in the cache folder of the user's home.

    Of the home that the user database names: the engine process, which must find it too, inherits no HOME and no XDG.
    """
    if chosen := os.environ.get("SPECCHAT_CACHE") or os.environ.get("SPECCHAT_RUNTIME"):
        return Path(chosen) / "tuned"
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user without a name, as in containers
        home = Path("/")
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "specchat" / "tuned"


def tuning_key(profile: Profile) -> dict[str, Any]:
    """All that the numbers depend on, as far as it can be told without loading anything."""
    models = profile.models
    return {
        "models": asdict(models), "exact": profile.speculation.exact, "weights": _weight_files(models),
        "machine": [platform.machine(), platform.node(), os.cpu_count()], "cards": _gpu_names(),
    }  # fmt: skip


def _gpu_names() -> list[str]:
    """The names of the NVIDIA cards that the driver knows; none where there is no such driver."""
    try:
        texts = [file.read_text(encoding="utf-8") for file in sorted(NVIDIA_GPUS.glob("*/information"))]
    except OSError:
        return []
    lines = (line.partition(":") for text in texts for line in text.splitlines())
    return [value.strip() for name, _, value in lines if name.strip() == "Model"]


def _weight_files(models: Models) -> list[list[Any]]:
    """The files of models that are folders here: name, size and time of change. A hub id stands for itself."""
    sources = [(models.target, "target"), (models.draft, "draft"), *((head, "") for head in models.heads)]
    folders = [PACKAGE / "embedded" / role if name == "embedded" else Path(name).expanduser() for name, role in sources]
    return [_files(folder) for folder, (name, _role) in zip(folders, sources, strict=True) if name]


def _files(folder: Path) -> list[Any]:
    try:
        found = [folder] if folder.is_file() else sorted(folder.rglob("*.safetensors")) + sorted(folder.glob("*.json"))
        return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in found]
    except OSError:
        return []
