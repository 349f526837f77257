"""Models that lie on this disk: those that ship with specchat, folders, and what the hub's cache holds.

Reads names and configs only; asks no network and imports neither torch nor the hub's library, so a list is quick.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.architecture import Architecture
from specchat.hub.catalog import did_you_mean, find_entry
from specchat.hub.safetensors_headers import read_architecture

EMBEDDED = Path(__file__).parents[1] / "embedded"
EMBEDDED_ROLES = ("target", "draft", "eagle3", "mtp", "medusa", "eagle")
CACHE_FOLDER_PREFIX = "models--"


@dataclass(frozen=True)
class LocalModel:
    """A model or head on this disk."""

    id: str
    folder: Path

    @property
    def bytes(self) -> int:
        """What its files take. Links of the cache are followed."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class LocatedModel:
    """What was found under a name."""

    name: str
    architecture: Architecture
    folder: Path | None = None  # None: only the catalog knows it

    @property
    def evidence(self) -> str:
        """What its figures follow from, in words."""
        if self.folder is None:
            return "from the catalog"
        return "from the headers of its files" if self.architecture.stored_bytes is not None else "from its config.json"


def hub_cache_folder() -> Path:
    """Where the hub's library keeps what it fetched; the same variables count as for it."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def cached_folder(source: str) -> Path | None:
    """The newest snapshot of a hub id; None when the cache holds none."""
    snapshots = hub_cache_folder() / (CACHE_FOLDER_PREFIX + source.replace("/", "--")) / "snapshots"
    try:
        found = sorted(snapshots.iterdir(), key=lambda path: path.stat().st_mtime)
    except OSError:
        return None
    return found[-1] if found else None


def local_models() -> Iterator[LocalModel]:
    """All of them, those that ship with specchat first."""
    yield from (
        LocalModel(f"embedded/{role}", EMBEDDED / role) for role in EMBEDDED_ROLES if (EMBEDDED / role).is_dir()
    )
    cache = hub_cache_folder()
    for folder in sorted(cache.glob(f"{CACHE_FOLDER_PREFIX}*--*")) if cache.is_dir() else ():
        name = folder.name.removeprefix(CACHE_FOLDER_PREFIX).replace("--", "/", 1)
        if snapshot := cached_folder(name):
            yield LocalModel(name, snapshot)


def locate_model(source: str) -> LocatedModel:
    """A folder, a config.json, a file of weights, a name of the catalog, or a hub id in the cache; else ModelError."""
    if source == "embedded":
        return LocatedModel(source, read_architecture(EMBEDDED / "target"), EMBEDDED / "target")
    shipped = EMBEDDED / source.removeprefix("embedded/")
    path = shipped if source.startswith("embedded/") and shipped.is_dir() else Path(source).expanduser()
    if path.exists():
        return LocatedModel(source, read_architecture(path), path)
    entry = find_entry(source)
    for name in (source, entry.id if entry else source):
        if folder := cached_folder(name):
            return LocatedModel(name, read_architecture(folder), folder)
    if entry:
        return LocatedModel(entry.id if source.count("/") != 1 else source, entry.architecture)
    raise ModelError(
        f"{source}: neither a folder, nor in the catalog, nor on this disk;{did_you_mean(source)} "
        "'specchat models list' shows what there is"
    )
