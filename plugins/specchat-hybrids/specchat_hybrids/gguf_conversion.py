"""All weights of a GGUF file → safetensors, for readers that know nothing else: transformers, plugins, other servers.

Our own passes read the file itself, so this is done when such a reader is asked for, once, and a few megabytes at a
time. Imports no torch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_conversion import Check
from specchat.weights.gguf.gguf_manifest import MANIFEST_FILE, PART, GgufManifest, MappedTensor, WeightChange
from specchat.weights.gguf.gguf_preparation import Report, make_once, no_report
from specchat.weights.gguf.gguf_rows import PublishedRows, read_float32, row_count

CONVERTED_FOLDER = "bf16"  # in the prepared folder
SPARE_DISK_BYTES = 2**28
SHARD_BYTES = 5 * 10**9
SIZES = {"BF16": 2, "F32": 4}


def safetensors_folder(folder: Path, report: Report = no_report, check: Check | None = None) -> Path:
    """The same folder, or the converted one of a prepared folder; it is made now unless `check` refuses its shapes."""
    manifest = GgufManifest.from_folder(folder)
    if manifest is None:
        return folder
    converted, source = folder / CONVERTED_FOLDER, manifest.files[0].path
    if converted.is_dir():
        return converted
    if check is not None:
        check({name: _shape(parts) for name, parts in _published(manifest.tensors).items()})
    make_once(converted, source, lambda unfinished: _convert(manifest, folder, unfinished, report), report, "converted")
    return converted


def _convert(manifest: GgufManifest, prepared: Path, folder: Path, report: Report) -> None:
    source, total = manifest.files[0].path, sum(map(_stored_bytes, manifest.tensors))
    if any(".experts." in each.name and each.name.endswith(".bias") for each in manifest.tensors):
        raise ModelError(f"{source}: experts with biases cannot be converted; use the model's own *.safetensors")
    _check_disk_space(source, prepared, total)
    for file in prepared.iterdir():
        if file.suffix in (".json", ".jinja") and file.name != MANIFEST_FILE:
            shutil.copyfile(file, folder / file.name)
    _write_weights(manifest.tensors, folder, lambda done: report(f"converting {source.name}", done, total))


def _check_disk_space(source: Path, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + SPARE_DISK_BYTES > free:
        raise ModelError(
            f"{source}: converted to bf16 it takes {needed / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are "
            "free; free some space, or set SPECCHAT_CACHE to a folder on another disk"
        )


def _stored_bytes(tensor: MappedTensor) -> int:
    """The size of a tensor in the conversion."""
    return SIZES[_dtype(tensor)] * prod(tensor.source.shape)


def _dtype(tensor: MappedTensor) -> str:
    return "F32" if tensor.change is WeightChange.IN_FLOAT32 else "BF16"


def _write_weights(tensors: Sequence[MappedTensor], folder: Path, on_bytes: Callable[[int], None]) -> None:
    """Write model.safetensors, or several and their index when they are large. `on_bytes` gets the bytes so far."""
    shards = _shards(tensors)
    names = [
        "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        for number in range(1, len(shards) + 1)
    ]
    done = 0
    for name, shard in zip(names, shards, strict=True):
        with (folder / name).open("wb") as output:
            for written in _write_shard(shard, output):
                done += written
                on_bytes(done)
            output.flush()
            os.fsync(output.fileno())
    if len(shards) > 1:
        weight_map = {each: name for name, shard in zip(names, shards, strict=True) for each in shard}
        index = {"metadata": {"total_size": done}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")


def _published(tensors: Sequence[MappedTensor]) -> dict[str, list[MappedTensor]]:
    """The parts of each published tensor."""
    published = dict[str, list[MappedTensor]]()
    for tensor in tensors:
        published.setdefault(tensor.name.partition(PART)[0], []).append(tensor)
    return published


def _shards(tensors: Sequence[MappedTensor]) -> list[dict[str, list[MappedTensor]]]:
    """The published tensors and their parts, in groups of at most SHARD_BYTES."""
    shards, size = [dict[str, list[MappedTensor]]()], 0
    for name, parts in _published(tensors).items():
        stored = sum(map(_stored_bytes, parts))
        if shards[-1] and size + stored > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = parts
        size += stored
    return shards


def _write_shard(tensors: Mapping[str, Sequence[MappedTensor]], output: IO[bytes]) -> Iterator[int]:
    """Write a safetensors file: its header, then each tensor. Yields the bytes of each part of a tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, parts in tensors.items():
        end = offset + sum(map(_stored_bytes, parts))
        header[name] = {"dtype": _dtype(parts[0]), "shape": _shape(parts), "data_offsets": [offset, end]}
        offset = end
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    output.write(len(content).to_bytes(8, "little") + content)
    for part in (part for parts in tensors.values() for part in parts):
        for rows in _rows(part):
            output.write(rows.data)
            yield rows.nbytes


def _shape(parts: Sequence[MappedTensor]) -> list[int]:
    """The published shape of a tensor that is one of the file, or whose rows are those of several."""
    if PART not in parts[0].name:
        return list(parts[0].source.shape)
    columns = parts[0].source.shape[0 if parts[0].change is WeightChange.TRANSPOSED else -1]
    rows = sum(prod(each.source.shape) for each in parts) // columns
    stack = parts[0].stack
    return [stack, rows // stack, columns] if stack else [rows, columns]


def _rows(part: MappedTensor) -> Iterator[numpy.ndarray]:
    if part.change is WeightChange.IN_FLOAT32:
        yield read_float32(part.source)
        return
    rows = PublishedRows.of(part)
    if part.change is WeightChange.TRANSPOSED:
        yield numpy.ascontiguousarray(rows.bf16(0, row_count(part)).T)
    else:
        yield from rows.bf16_chunks(0, row_count(part))
