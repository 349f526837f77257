"""The tensors of a GGUF file by their published names, read from the file itself: as blocks, in bf16, or row by row.

Knows files and names; knows no kernel and no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy
import torch
from torch import Tensor

from specchat.forward.linear.packed_linear import StoredBlocks
from specchat.forward.llama.embedding_rows import ReadTokenRows
from specchat.weights.gguf.gguf_manifest import GgufManifest, MappedTensor, WeightChange
from specchat.weights.gguf.gguf_rows import (
    PublishedRows,
    TensorBytes,
    published_bf16,
    row_count,
    stored_heads,
    token_distances,
)
from specchat.weights.tensor_files import TensorFiles, TensorLocation


@dataclass(frozen=True)
class GgufTensorFiles(TensorFiles):
    """The tensors of a prepared folder."""

    tensors: Mapping[str, MappedTensor] = field(default_factory=dict[str, MappedTensor])

    @classmethod
    def from_folder(cls, folder: Path) -> GgufTensorFiles | None:
        """None for a folder that was not made from a GGUF file. ModelError where the file is gone or has changed."""
        manifest = GgufManifest.from_folder(folder)
        if manifest is None:
            return None
        tensors = {each.name: each for each in manifest.tensors}
        stored = {name: each.source for name, each in tensors.items()}
        locations = {name: TensorLocation(each.path, each.name, each.shape) for name, each in stored.items()}
        return cls(manifest.files[0].path, locations, tensors)

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same tensors under other names: {new: old}. Tensors without a new name are left out."""
        return replace(super().renamed(names), tensors={new: self.tensors[old] for new, old in names.items()})

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Read some rows of a matrix, in bf16. Only these rows are dequantized; a vector is one row.

        Those of a table of tokens are integers.
        """
        tensor = self._tensor(name)
        if tensor.change is WeightChange.IDS:
            return torch.from_numpy(token_distances(tensor.source)[first:last])
        if len(tensor.source.shape) > 1:
            return _to_tensor(PublishedRows.of(tensor).bf16(first, last)).view(-1, *tensor.source.shape[1:])
        return _to_tensor(PublishedRows.of(tensor).bf16(0, 1))[0, first:last]

    def stored_blocks(self, name: str) -> StoredBlocks:
        """A matrix as it is in the file."""
        tensor = self._tensor(name)
        rows, order = PublishedRows.of(tensor), tensor.head_order
        return StoredBlocks(
            tensor.source.type_name,
            (row_count(tensor), tensor.source.shape[-1]),
            lambda first, last: torch.from_numpy(rows.blocks(first, last)),
            torch.from_numpy(stored_heads(order).argsort()) if order and order.is_of_columns else None,
        )

    def token_rows(self, name: str) -> ReadTokenRows:
        """Reads the rows of some tokens, in bf16, while the model is used."""
        tensor = self._tensor(name)
        stored = TensorBytes(tensor.source)
        return lambda tokens: _to_tensor(published_bf16(tensor, stored.single_rows(tokens)))

    def _tensor(self, name: str) -> MappedTensor:
        self._location(name)  # ModelError for an unknown name
        return self.tensors[name]


def _to_tensor(bf16_bits: numpy.ndarray) -> Tensor:
    return torch.from_numpy(bf16_bits).view(torch.bfloat16)
