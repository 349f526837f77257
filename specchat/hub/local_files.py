"""Models that lie on this disk: those that ship with specchat, folders, and what the hub's cache holds.

Reads names and configs only; asks no network and imports neither torch nor the hub's library, so a list is quick.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.architecture import Anatomy
from specchat.hub.catalog import find_entry, nearest_names
from specchat.hub.weight_headers import read_anatomy

EMBEDDED = Path(__file__).parents[1] / "embedded"
EMBEDDED_ROLES = ("target", "draft", "eagle3", "mtp", "medusa", "eagle")
MARK = "models--"


@dataclass(frozen=True)
class OnDisk:
    """A model or head on this disk."""

    id: str
    folder: Path

    @property
    def bytes(self) -> int:
        """What its files take. Links of the cache are followed."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Located:
    """What was found under a name."""

    name: str
    anatomy: Anatomy
    folder: Path | None = None  # None: only the catalog knows it

    @property
    def evidence(self) -> str:
        """What its figures follow from, in words."""
        if self.folder is None:
            return "from the catalog"
        return "from the headers of its files" if self.anatomy.stored_bytes is not None else "from its config.json"


def cache_of_hub() -> Path:
    """Where the hub's library keeps what it fetched; the same variables count as for it."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def cached_folder(source: str) -> Path | None:
    """The newest snapshot of a hub id; None when the cache holds none."""
    snapshots = cache_of_hub() / (MARK + source.replace("/", "--")) / "snapshots"
    try:
        found = sorted(snapshots.iterdir(), key=lambda path: path.stat().st_mtime)
    except OSError:
        return None
    return found[-1] if found else None


def on_disk() -> Iterator[OnDisk]:
    """All of them, those that ship with specchat first."""
    yield from (OnDisk(f"embedded/{role}", EMBEDDED / role) for role in EMBEDDED_ROLES if (EMBEDDED / role).is_dir())
    cache = cache_of_hub()
    for folder in sorted(cache.glob(f"{MARK}*--*")) if cache.is_dir() else ():
        name = folder.name.removeprefix(MARK).replace("--", "/", 1)
        if snapshot := cached_folder(name):
            yield OnDisk(name, snapshot)


def locate(source: str) -> Located:
    """A folder, a config.json, a file of weights, a name of the catalog, or a hub id in the cache; else ModelError."""
    if source == "embedded":
        return Located(source, read_anatomy(EMBEDDED / "target"), EMBEDDED / "target")
    shipped = EMBEDDED / source.removeprefix("embedded/")
    path = shipped if source.startswith("embedded/") and shipped.is_dir() else Path(source).expanduser()
    if path.exists():
        return Located(source, read_anatomy(path), path)
    entry = find_entry(source)
    for name in (source, entry.id if entry else source):
        if folder := cached_folder(name):
            return Located(name, read_anatomy(folder), folder)
    if entry:
        return Located(entry.id if source.count("/") != 1 else source, entry.anatomy)
    raise ModelError(
        f"{source}: neither a folder, nor in the catalog, nor on this disk;{nearest_names(source)} "
        "'specchat models list' shows what there is"
    )
