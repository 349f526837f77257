"""All weights of a GGUF file → safetensors, for readers that know nothing else: transformers, plugins, other servers.

Our own passes read the file itself, so this is done when such a reader is asked for, once. Imports no torch.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from specchat.errors import ModelError
from specchat.weights.cached_folders import make_once
from specchat.weights.gguf.gguf_manifest import MANIFEST_FILE, GgufManifest
from specchat.weights.gguf.gguf_preparation import Report, no_report
from specchat.weights.gguf.gguf_weights import stored_bytes, write_weights

CONVERTED_FOLDER = "bf16"  # in the prepared folder
SPARE_DISK_BYTES = 2**28


def safetensors_folder(folder: Path, report: Report = no_report) -> Path:
    """The same folder, or the converted one of a prepared folder, which is made now if it is missing."""
    manifest = GgufManifest.from_folder(folder)
    if manifest is None:
        return folder
    converted, source = folder / CONVERTED_FOLDER, manifest.files[0].path
    if converted.is_dir():
        return converted
    try:
        make_once(
            converted,
            lambda unfinished: _convert(manifest, folder, unfinished, report),
            lambda: report(f"waiting for another process: {source.name}", 0, 0),
        )
    except OSError as error:
        raise ModelError(f"{source}: cannot be converted in {folder}: {error.strerror or error}") from error
    return converted


def _convert(manifest: GgufManifest, prepared: Path, folder: Path, report: Report) -> None:
    source, total = manifest.files[0].path, sum(map(stored_bytes, manifest.tensors))
    _check_disk_space(source, prepared, total)
    for file in prepared.iterdir():
        if file.suffix in (".json", ".jinja") and file.name != MANIFEST_FILE:
            shutil.copyfile(file, folder / file.name)
    write_weights(manifest.tensors, folder, lambda done: report(f"converting {source.name}", done, total))


def _check_disk_space(source: Path, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + SPARE_DISK_BYTES > free:
        raise ModelError(
            f"{source}: converted to bf16 it takes {needed / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are "
            "free; free some space, or set SPECCHAT_CACHE to a folder on another disk"
        )
