"""Deletes a model from the hub's cache, the starter model, or the folder that was made from a GGUF file.

Never touches other folders, nor a GGUF file that specchat did not download.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.package_download import packaged_file, packaged_model
from specchat.paths import hub_repo_folder, is_hub_id
from specchat.weights.gguf.gguf_preparation import find_prepared
from specchat.weights.gguf.gguf_sources import local_gguf

LISTED = "'specchat models list --here' shows what is on this disk"


@dataclass(frozen=True)
class Removal:
    folder: Path
    freed_bytes: int
    run: Callable[[], None]


def plan_removal(source: str) -> Removal:
    """Plan the deletion of a model; ModelError when it is not on this disk."""
    if (entry := packaged_model(source)) is not None:
        folder = packaged_file(entry).parent
        if not folder.is_dir():
            raise ModelError(f"{source}: not on this disk ({folder}); {LISTED}")
        return _removal_of(folder, *filter(None, map(find_prepared, folder.glob("*.gguf"))))
    if gguf := local_gguf(source):
        if (prepared := find_prepared(gguf)) is None:
            raise ModelError(f"{source}: nothing was made from it, and specchat does not delete GGUF files")
        return _removal_of(prepared)
    if not is_hub_id(source):
        raise ModelError(f"{source}: not a hub id like org/name; {LISTED}")
    folder = hub_repo_folder(source)
    if not folder.is_dir() or folder.is_symlink():
        raise ModelError(f"{source}: not in the cache ({folder.parent}); {LISTED}")
    return _removal_of(folder)


def _removal_of(*folders: Path) -> Removal:
    """The removal of whole folders, of which the first one is named."""

    def run() -> None:
        for each in folders:
            shutil.rmtree(each, ignore_errors=True)  # the caller sees what is left

    files = (path for each in folders for path in each.rglob("*") if path.is_file() and not path.is_symlink())
    return Removal(folders[0], sum(file.stat().st_size for file in files), run)
