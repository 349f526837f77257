"""The blocks of the GGUF file that a folder was converted from, by the names of the folder's tensors.

A layer that is multiplied as it is stored reads them instead of the folder's bf16 numbers. Knows no kernel.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy
import torch
from torch import Tensor

from specchat.errors import ModelError
from specchat.forward.packed_linear import StoredBlocks
from specchat.models.gguf_conversion import SOURCE_FILE, find_converted
from specchat.models.gguf_families import MappedTensor, map_model
from specchat.models.gguf_file import read_gguf
from specchat.models.gguf_weights import rows_reader


@dataclass(frozen=True)
class GgufBlocks:
    """The tensors of a GGUF file by their published names."""

    tensors: dict[str, MappedTensor]

    @classmethod
    def from_folder(cls, folder: Path) -> GgufBlocks:
        """Of a converted folder; ModelError for another folder, and where the file is gone or has changed."""
        source = folder / SOURCE_FILE
        if not source.is_file():
            raise ModelError(f"{folder}: was not made from a GGUF file; --weights gguf needs one, use --weights float")
        path = Path(json.loads(source.read_text(encoding="utf-8"))["path"])
        if not path.is_file() or find_converted(path) != folder:
            raise ModelError(f"{path}: is gone or has changed since {folder} was made from it; name the file again")
        return cls({each.name: each for each in map_model(read_gguf(path)).tensors})

    def stored(self, name: str) -> StoredBlocks | None:
        """The blocks of a matrix; None when the file has no such tensor."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        columns = tensor.source.shape[-1]
        shape = (prod(tensor.source.shape[:-1]), columns)
        return StoredBlocks(tensor.source.type_name, shape, partial(_read_rows, rows_reader(tensor)))


def _read_rows(read: Callable[[int, int], numpy.ndarray], first: int, last: int) -> Tensor:
    return torch.from_numpy(numpy.array(read(first, last)))  # a copy: the file is read-only
