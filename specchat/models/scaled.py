"""Weights in eight bits with a scale for every block of a matrix, as DeepSeek-V3 is published: read as what they mean.

`x.weight` (float8_e4m3fn) times `x.weight_scale_inv` (float32, one for every 128 x 128 numbers, the last row and column
of blocks cut off) is the weight, whatever "inv" says. Knows files; a head that is loaded from here is full-sized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from specchat.errors import ModelError
from specchat.models.weights import TensorFiles

SCALE = "_scale_inv"


@dataclass(frozen=True)
class ScaledFiles(TensorFiles):
    """Tensors of which some have scales beside them."""

    block: tuple[int, int] = (128, 128)  # rows and columns that share a scale

    def renamed(self, names: Mapping[str, str]) -> ScaledFiles:
        """The same tensors under other names: {new: old}. Scales go where they are named to."""
        return ScaledFiles(self.source, super().renamed(names).places, self.block)

    def read(self, name: str) -> Tensor:
        """One tensor in main memory: multiplied with its scales in float32 if it has any, else as the file has it."""
        tensor = super().read(name)
        if f"{name}{SCALE}" not in self:
            return tensor
        scale, (rows, columns) = super().read(f"{name}{SCALE}").float(), self.block
        wanted = (-(-tensor.shape[0] // rows), -(-tensor.shape[1] // columns))
        if scale.shape != wanted:
            blocks = f"{list(tensor.shape)} in blocks of {rows} x {columns} has {list(wanted)} scales"
            raise ModelError(f"{self.source}: {name} {blocks}, and the file holds {list(scale.shape)}")
        spread = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
        return tensor.float() * spread[: tensor.shape[0], : tensor.shape[1]]
