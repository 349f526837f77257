"""Deletes a model or a GGUF file from the hub's cache, the starter model, or what was made from other files.

Never touches other folders, nor a GGUF file outside of that cache; of a folder only the weights that were quantized.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.package_download import packaged_file, packaged_model
from specchat.paths import hub_repo_folder, hub_snapshots, is_hub_id, kept_weights_of
from specchat.weights.gguf.gguf_file import shard_paths
from specchat.weights.gguf.gguf_labels import split_label
from specchat.weights.gguf.gguf_preparation import find_prepared
from specchat.weights.gguf.gguf_sources import gguf_models, local_gguf

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
        return _removal_of(folder, *_made_from(*folder.glob("*.gguf")))
    is_cached = is_hub_id(source) and not Path(source).expanduser().exists()
    is_whole = is_cached and not split_label(source)[1]
    if not is_whole and (gguf := local_gguf(source)):
        made = _made_from(gguf)
        if is_cached:
            parts = shard_paths(gguf)
            return _removal_of(*parts, *(each.resolve() for each in parts), *made)
        if not made:
            raise ModelError(f"{source}: nothing was made from it, and specchat does not delete GGUF files")
        return _removal_of(*made)
    if not is_cached and (kept := kept_weights_of(Path(source).expanduser())):
        return _removal_of(*kept)
    if not is_cached:
        raise ModelError(f"{source}: not a hub id like org/name; {LISTED}")
    folder = hub_repo_folder(source)
    if not is_whole or not folder.is_dir() or folder.is_symlink():
        raise ModelError(f"{source}: not in the cache ({folder.parent}); {LISTED}")
    snapshots = hub_snapshots(source)
    kept = [kept for each in snapshots for kept in kept_weights_of(each)]
    return _removal_of(folder, *kept, *_made_from(*gguf_models(*snapshots).values()))


def _made_from(*files: Path) -> list[Path]:
    """The folders that were made from GGUF files: what is small, and weights that stay on the disk."""
    return [made for each in map(find_prepared, files) if each for made in (each, *kept_weights_of(each))]


def _removal_of(*paths: Path) -> Removal:
    """The removal of files and whole folders, of which the first one is named."""

    def run() -> None:
        for each in paths:
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)  # the caller sees what is left
            else:
                each.unlink(missing_ok=True)

    inside = (path for each in dict.fromkeys(paths) for path in ([each] if each.is_file() else each.rglob("*")))
    files = (path for path in inside if path.is_file() and not path.is_symlink())
    return Removal(paths[0], sum(file.stat().st_size for file in files), run)
