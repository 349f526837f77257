"""What a prepared folder knows of its GGUF file: which tensors of the published model it has, and where.

A later start reads this instead of the header, which has the whole vocabulary. Reads no weights; imports
neither torch nor numpy, because front ends list models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufFile, GgufTensor, size_and_time

MANIFEST_FILE = "gguf.json"  # in a prepared folder
PART = "#"  # between the name of a published tensor and the number of a part of it


class WeightChange(Enum):
    """What llama.cpp's converter did to a tensor."""

    NONE = "none"
    PAIRED_ROWS = "paired rows"  # of Q and K: RoPE rotates neighbours instead of halves
    PLUS_ONE = "plus one"  # norms that multiply by 1 + weight
    MINUS_EXP = "minus exp"  # of the rates of a recurrent layer
    TRANSPOSED = "transposed"  # this and the next one are for conversions alone
    IN_FLOAT32 = "in float32"  # nothing: numbers of which bf16 would choose other experts
    IDS = "ids"  # of the target's tokens, instead of their distances to those of the head


@dataclass(frozen=True)
class HeadOrder:
    """Heads that are stored in another order: of a tensor's rows, numbers or columns behind the first ones.

    Published are `inner` groups of `outer` heads each; stored is the first head of every group, then the second.
    """

    outer: int
    inner: int
    size: int  # of a head
    first: int = 0  # rows that are before the heads
    skipped: int = 0  # published rows that are of another tensor
    is_of_columns: bool = False

    @property
    def count(self) -> int:
        """Of the rows, numbers or columns of all heads."""
        return self.outer * self.inner * self.size


@dataclass(frozen=True)
class MappedTensor:
    """A tensor of the file, and what becomes of it."""

    source: GgufTensor
    name: str  # in model.safetensors; with PART and a number, its rows are some of that tensor
    change: WeightChange = WeightChange.NONE
    heads: int = 0  # of a tensor with paired rows
    head_order: HeadOrder | None = None
    stack: int = 0  # matrices of the published tensor, which this is a part of; 0: it is one matrix


@dataclass(frozen=True)
class MappedModel:
    """A model as published: its config.json without token ids, and its tensors."""

    config: dict[str, Any]
    tensors: tuple[MappedTensor, ...]


@dataclass(frozen=True)
class SourceFile:
    """A shard as it was when the folder was prepared."""

    path: Path
    bytes: int
    changed_ns: int

    @classmethod
    def now(cls, path: Path) -> SourceFile:
        return cls(path, *size_and_time(path))


@dataclass(frozen=True)
class GgufManifest:
    files: tuple[SourceFile, ...]
    quantization: str  # the block type that holds the most weights
    tensors: tuple[MappedTensor, ...]

    @classmethod
    def from_file(cls, file: GgufFile, tensors: Iterable[MappedTensor]) -> GgufManifest:
        files = {path: SourceFile.now(path.resolve()) for path in file.paths}
        return cls(tuple(files.values()), file.quantization, tuple(tensors))

    @classmethod
    def from_folder(cls, folder: Path) -> GgufManifest | None:
        """That of a prepared folder; None for any other place. ModelError where the GGUF file has changed since."""
        try:
            content = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder}: its {MANIFEST_FILE} cannot be read; remove the folder") from error
        manifest = cls._from_json(content)
        _check_files(manifest.files, folder)
        return manifest

    def to_json(self) -> dict[str, Any]:
        numbers = {file.path: number for number, file in enumerate(self.files)}
        return {
            "path": str(self.files[0].path),
            "quantization": self.quantization,
            "files": [[str(file.path), file.bytes, file.changed_ns] for file in self.files],
            "tensors": {each.name: _tensor_to_json(each, numbers) for each in self.tensors},
        }

    @classmethod
    def _from_json(cls, content: Mapping[str, Any]) -> GgufManifest:
        files = tuple(SourceFile(Path(path), size, changed_ns) for path, size, changed_ns in content["files"])
        tensors = (_tensor_from_json(name, values, files) for name, values in content["tensors"].items())
        return cls(files, content["quantization"], tuple(tensors))


def _check_files(files: Iterable[SourceFile], folder: Path) -> None:
    for file in files:
        if not file.path.is_file() or SourceFile.now(file.path) != file:
            raise ModelError(
                f"{file.path}: is gone or has changed since {folder} was made from it; name the file again"
            )


def _tensor_to_json(tensor: MappedTensor, numbers: Mapping[Path, int]) -> list[Any]:
    stored = tensor.source
    place = [numbers[stored.path.resolve()], stored.name, stored.type_name, list(stored.shape)]
    order = None if tensor.head_order is None else astuple(tensor.head_order)
    rest = [order, tensor.stack] if order or tensor.stack else []
    return [*place, stored.offset, stored.bytes, tensor.change.value, tensor.heads, *rest]


def _tensor_from_json(name: str, values: list[Any], files: tuple[SourceFile, ...]) -> MappedTensor:
    number, stored_name, type_name, shape, offset, size, change, heads, *rest = values
    stored = GgufTensor(files[number].path, stored_name, tuple(shape), type_name, offset, size)
    order, stack = (HeadOrder(*rest[0]) if rest and rest[0] else None), (rest[1] if len(rest) > 1 else 0)
    return MappedTensor(stored, name, WeightChange(change), heads, order, stack)
