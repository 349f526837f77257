"""Models on this disk: the embedded ones, the starter, folders, GGUF files, the hub's cache, Ollama and LM Studio.

Reads names and headers only. Uses no network and imports neither torch nor huggingface_hub, so it is fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.architecture import HEAD, Architecture
from specchat.hub.catalog import did_you_mean, find_entry
from specchat.hub.find_models import model_path
from specchat.hub.safetensors_headers import has_weights, read_architecture
from specchat.paths import hub_cache_folder, hub_snapshot, hub_snapshots, read_json_object, starter_file, starter_folder
from specchat.profile.keys import STARTER
from specchat.weights.gguf.gguf_file import read_gguf, shard_paths
from specchat.weights.gguf.gguf_labels import LM_STUDIO_PREFIX
from specchat.weights.gguf.gguf_sources import (
    OLLAMA_PREFIX,
    gguf_models,
    lm_studio_models,
    local_gguf,
    ollama_manifests,
)
from specchat.weights.load_options import EMBEDDED

EMBEDDED_ROLES = ("target", "draft", "eagle3", "mtp")
CACHE_FOLDER_PREFIX = "models--"


@dataclass(frozen=True)
class LocalModel:
    id: str
    path: Path  # a folder, a GGUF file, or a manifest of Ollama

    @property
    def bytes(self) -> int:
        """The size of its files. Links in the cache are followed. ModelError when the blob of a manifest is gone."""
        if self.path.is_dir():
            return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in shard_paths(self.files))

    @property
    def files(self) -> Path:
        """Its folder, or its GGUF file; ModelError when the blob of a manifest is gone."""
        return self._gguf() or self.path

    def details(self) -> LocalDetails:
        """Its format and sizes, or why it cannot be used."""
        try:
            gguf = self._gguf()
            if gguf is None and _is_mlx(self.path):
                problem = "MLX is not supported; choose a GGUF file or *.safetensors"
                return LocalDetails(self.bytes, "MLX", None, problem)
            if not has_weights(gguf or self.path):
                return LocalDetails(self.bytes, "", None, "it has no *.safetensors, or not all of them")
            architecture = read_architecture(gguf or self.path)
            quantization = read_gguf(gguf).quantization if gguf else architecture.stored_format
            return LocalDetails(self.bytes, quantization, None if architecture.family == HEAD else architecture)
        except ModelError as error:
            return LocalDetails(None, "", None, str(error))

    def _gguf(self) -> Path | None:
        return local_gguf(self.id if self.id.startswith(OLLAMA_PREFIX) else str(self.path))


@dataclass(frozen=True)
class LocalDetails:
    """What the headers of a model say."""

    bytes: int | None  # None: unknown
    quantization: str  # Q4_K, bf16, ...
    architecture: Architecture | None  # None: a head, or not readable
    problem: str = ""  # why it cannot be loaded


@dataclass(frozen=True)
class LocatedModel:
    name: str
    architecture: Architecture
    folder: Path | None = None  # or GGUF file; None: it is in the catalog only


def cached_folder(source: str) -> Path | None:
    """The files of a hub id, or the folder of the starter; None when it is not on this disk."""
    if source == STARTER:
        return starter_folder() if starter_file() is not None else None
    return hub_snapshot(source)


def local_models() -> Iterator[LocalModel]:
    """The embedded models, the starter, and those in the hub's cache; without GGUF files."""
    yield from (
        LocalModel(f"embedded/{role}", EMBEDDED / role) for role in EMBEDDED_ROLES if (EMBEDDED / role).is_dir()
    )
    if folder := cached_folder(STARTER):
        yield LocalModel(STARTER, folder)
    for name in _cached_hub_ids():
        snapshot = cached_folder(name)
        if snapshot and (any(snapshot.glob("*.safetensors")) or not gguf_models(snapshot)):
            yield LocalModel(name, snapshot)


def models_on_disk() -> Iterator[LocalModel]:
    """All models of this disk that `--target` takes by these names, and heads."""
    yield from local_models()
    yield from models_of_other_programs()


def models_of_other_programs() -> Iterator[LocalModel]:
    """Every model of Ollama and LM Studio, and every GGUF file in the hub's cache; named as `--target` expects it."""
    for manifest in ollama_manifests():
        yield LocalModel(f"{OLLAMA_PREFIX}{manifest.name}", manifest.path)
    for name, folder in sorted(lm_studio_models().items()):
        if (folder / "config.json").is_file():
            yield LocalModel(str(folder), folder)
        yield from _gguf_files(f"{LM_STUDIO_PREFIX}{name}", folder)
    for name in _cached_hub_ids():
        yield from _gguf_files(name, *hub_snapshots(name))


def _gguf_files(name: str, *folders: Path) -> Iterator[LocalModel]:
    yield from (LocalModel(f"{name}:{label}", path) for label, path in gguf_models(*folders).items())


def _cached_hub_ids() -> list[str]:
    folders = sorted(hub_cache_folder().glob(f"{CACHE_FOLDER_PREFIX}*--*"))
    return [folder.name.removeprefix(CACHE_FOLDER_PREFIX).replace("--", "/", 1) for folder in folders]


def locate_model(source: str) -> LocatedModel:
    """Find a folder, config.json, weights or GGUF file, model of another program, catalog's name or cached hub id."""
    if path := model_path(source):
        return LocatedModel(source, read_architecture(path), path)
    entry = find_entry(source)
    for name in (source, entry.id if entry else source):
        if folder := cached_folder(name):
            return LocatedModel(name, read_architecture(folder), folder)
    if entry:
        return LocatedModel(entry.id if source.count("/") != 1 else source, entry.architecture)
    raise ModelError(
        f"{source}: not a folder, not in the catalog and not on this disk;{did_you_mean(source)} "
        "'specchat models list' shows all models"
    )


def _is_mlx(folder: Path) -> bool:
    """Whether these are weights that MLX quantized for Apple's GPUs: only its config has this table."""
    table = read_json_object(folder / "config.json").get("quantization")
    return isinstance(table, dict) and "group_size" in table and "quant_method" not in table
