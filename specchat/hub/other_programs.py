"""Models that other programs stored on this disk: Ollama, LM Studio, and GGUF files in the hub's cache.

Reads names and headers only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from specchat.hub.local_models import LocalModel, local_models
from specchat.paths import hub_cache_folder
from specchat.weights.gguf.gguf_sources import OLLAMA_PREFIX, gguf_models, ollama_manifests

LM_STUDIO_FOLDERS = ("~/.lmstudio/models", "~/.cache/lm-studio/models")
LM_STUDIO_POINTER = "~/.lmstudio-home-pointer"  # a file with the path of its folder, where the user moved it


def models_on_disk() -> Iterator[LocalModel]:
    """All models of this disk that `--target` takes by these names, and heads."""
    yield from local_models()
    yield from models_of_other_programs()


def models_of_other_programs() -> Iterator[LocalModel]:
    """Every model of Ollama and LM Studio, and every GGUF file in the hub's cache; named as `--target` expects it."""
    for manifest in ollama_manifests():
        yield LocalModel(f"{OLLAMA_PREFIX}{manifest.name}", manifest.path)
    for folder in _lm_studio_folders():
        yield from _models_below(folder.glob("*/*"))
    yield from _gguf_files(hub_cache_folder().glob("models--*/snapshots/*"))


def _lm_studio_folders() -> list[Path]:
    """The folders with models, each as publisher/model."""
    folders = [Path(each).expanduser() for each in LM_STUDIO_FOLDERS]
    try:
        home = Path(LM_STUDIO_POINTER).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        home = ""
    candidates = [*folders, Path(home, "models")] if home else folders
    return list(dict.fromkeys(folder.resolve() for folder in candidates if folder.is_dir()))


def _models_below(folders: Iterable[Path]) -> Iterator[LocalModel]:
    for folder in sorted(each for each in folders if each.is_dir()):
        if (folder / "config.json").is_file():
            yield LocalModel(str(folder), folder)
        yield from _gguf_files([folder])


def _gguf_files(folders: Iterable[Path]) -> Iterator[LocalModel]:
    for folder in sorted(each for each in folders if each.is_dir()):
        yield from (LocalModel(os.fspath(path), path) for path in gguf_models(folder))
