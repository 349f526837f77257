"""The values that `specchat tune` measured for these models on this machine: between the defaults and the user file.

The cache folder has one small TOML file per combination of models and machine. Its name is a hash of everything that
the values depend on, so there are no tuned values for other models, another GPU or replaced weights. An invalid file
is ignored, because it can be measured again. Imports no torch.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from specchat.errors import ProfileError
from specchat.paths import cache_folder, starter_file, starter_folder
from specchat.profile.keys import EMBEDDED, STARTER, Models, Profile
from specchat.profile.shipped_drafters import starter_drafter, with_shipped_drafters
from specchat.profile.toml_lines import read_toml
from specchat.profile.validation import SettingsSource, merge_sources

SOURCE_KIND = "tuned"
TUNED_TABLES = ("speculation", "drafter_orders")
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
PACKAGE = Path(__file__).parents[1]


def tuned_source() -> SettingsSource:
    """A source that depends on the result of the other sources, because the models select the file."""
    return SettingsSource(SOURCE_KIND, {}, lambda _path: "", resolve_for=tuned_source_for)


def tuned_source_for(profile: Profile) -> SettingsSource | None:
    """The values for the models of this profile on this machine; None when there is no valid file."""
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
    """The path of the file for these models and this machine, whether it exists or not."""
    key = json.dumps(tuning_key(profile), sort_keys=True)
    return tuned_folder() / f"{blake2b(key.encode(), digest_size=12).hexdigest()}.toml"


def tuned_folder() -> Path:
    """The folder of these files, the same for front ends and the engine process."""
    return cache_folder() / "tuned"


def tuning_key(profile: Profile) -> dict[str, Any]:
    """Everything that the values depend on and that is known before a model is loaded."""
    models = profile.models
    return {
        "models": asdict(models), "exact": profile.speculation.exact, "weights": _weight_files(models),
        "machine": [platform.machine(), platform.node(), os.cpu_count()], "gpus": _gpu_names(),
    }  # fmt: skip


def _gpu_names() -> list[str]:
    try:
        texts = [file.read_text(encoding="utf-8") for file in sorted(NVIDIA_GPUS.glob("*/information"))]
    except OSError:
        return []
    lines = (line.partition(":") for text in texts for line in text.splitlines())
    return [value.strip() for name, _, value in lines if name.strip() == "Model"]


def _weight_files(models: Models) -> list[list[Any]]:
    """Name, size and modification time of the files of models in folders. A hub id needs none."""
    models = with_shipped_drafters(models)
    sources = [(models.target, "target"), (models.draft, "draft"), *((head, "") for head in models.heads)]
    return [_files(_folder(name, role)) for name, role in sources if name]


def _folder(name: str, role: str) -> Path:
    if name == EMBEDDED:
        return PACKAGE / EMBEDDED / role
    if name == STARTER:
        return starter_file() or starter_folder()
    return starter_drafter(name) or Path(name).expanduser()


def _files(folder: Path) -> list[Any]:
    try:
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.safetensors")) + sorted(folder.glob("*.json"))
        return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    except OSError:
        return []
