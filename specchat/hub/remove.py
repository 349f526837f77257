"""What the hub's cache holds of a model goes, by the hub's own deletion. Folders elsewhere are never touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import HFCacheInfo, scan_cache_dir

from specchat.errors import ModelError
from specchat.hub.repo_files import repo_cache_folder


@dataclass(frozen=True)
class Removal:
    """What would go, and how."""

    source: str
    folder: Path
    freed_bytes: int  # bytes that become free
    run: Callable[[], None]


def plan_removal(source: str) -> Removal:
    """What removing this model would free; ModelError when the cache has none of it."""
    if source.count("/") != 1 or source.startswith((".", "/", "~", "embedded/")):
        raise ModelError(f"{source}: no hub id like org/name; only what came from the hub is removed")
    folder = repo_cache_folder(source)
    if not folder.is_dir() or folder.is_symlink():
        raise ModelError(f"{source}: the cache has nothing of it ({folder.parent})")
    size = sum(path.lstat().st_size for path in (folder / "blobs").glob("*"))  # half files too: the hub leaves them out
    found = _scan_cached_model(source, folder.parent)
    hashes = [revision.commit_hash for repository in found.repos for revision in repository.revisions]
    if not hashes:
        return Removal(source, folder, size, lambda: shutil.rmtree(folder))  # a download that never ended
    return Removal(source, folder, size, found.delete_revisions(*hashes).execute)


def _scan_cached_model(source: str, cache: Path) -> HFCacheInfo:
    """The cache as if it held this model alone: a copy of it on the hub has the same commits, and they are its own."""
    scanned = scan_cache_dir(cache)
    ours = [each for each in scanned.repos if (each.repo_id, each.repo_type) == (source, "model")]
    return replace(scanned, repos=frozenset(ours))
