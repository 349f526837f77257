"""Models on this disk: the embedded ones, the starter, folders, and the hub's cache.

Reads names and configs only. Uses no network and imports neither torch nor huggingface_hub, so it is fast.
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
from specchat.paths import starter_file, starter_folder
from specchat.profile.keys import STARTER
from specchat.profile.shipped_drafters import starter_drafter

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
        """The size of its files. Links in the cache are followed."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class LocatedModel:
    """A model that was found by name."""

    name: str
    architecture: Architecture
    folder: Path | None = None  # None: it is in the catalog only

    @property
    def evidence(self) -> str:
        """The source of its figures, for output."""
        if self.folder is None:
            return "from the catalog"
        return "from the headers of its files" if self.architecture.stored_bytes is not None else "from its config.json"


def hub_cache_folder() -> Path:
    """The cache folder of huggingface_hub; follows the same environment variables."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def cached_folder(source: str) -> Path | None:
    """The newest snapshot of a hub id, or the folder of the starter; None when it is not on this disk."""
    if source == STARTER:
        return starter_folder() if starter_file() is not None else None
    snapshots = hub_cache_folder() / (CACHE_FOLDER_PREFIX + source.replace("/", "--")) / "snapshots"
    try:
        folders = sorted(snapshots.iterdir(), key=lambda path: path.stat().st_mtime)
    except OSError:
        return None
    return folders[-1] if folders else None


def local_models() -> Iterator[LocalModel]:
    """All models on this disk, the embedded ones and the starter first."""
    yield from (
        LocalModel(f"embedded/{role}", EMBEDDED / role) for role in EMBEDDED_ROLES if (EMBEDDED / role).is_dir()
    )
    if folder := cached_folder(STARTER):
        yield LocalModel(STARTER, folder)
    cache = hub_cache_folder()
    for folder in sorted(cache.glob(f"{CACHE_FOLDER_PREFIX}*--*")) if cache.is_dir() else ():
        name = folder.name.removeprefix(CACHE_FOLDER_PREFIX).replace("--", "/", 1)
        if snapshot := cached_folder(name):
            yield LocalModel(name, snapshot)


def locate_model(source: str) -> LocatedModel:
    """Find a folder, config.json, weights file, name of the catalog, or cached hub id; else ModelError."""
    if source == "embedded":
        return LocatedModel(source, read_architecture(EMBEDDED / "target"), EMBEDDED / "target")
    embedded = EMBEDDED / source.removeprefix("embedded/")
    path = embedded if source.startswith("embedded/") and embedded.is_dir() else starter_drafter(source)
    path = path or Path(source).expanduser()
    if path.exists():
        return LocatedModel(source, read_architecture(path), path)
    entry = find_entry(source)
    for name in (source, entry.id if entry else source):
        if name != STARTER and (folder := cached_folder(name)):
            return LocatedModel(name, read_architecture(folder), folder)
    if entry:
        return LocatedModel(entry.id if source.count("/") != 1 else source, entry.architecture)  # also of the starter
    raise ModelError(
        f"{source}: not a folder, not in the catalog and not on this disk;{did_you_mean(source)} "
        "'specchat models list' shows all models"
    )
