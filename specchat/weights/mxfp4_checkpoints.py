"""Reads published MXFP4 checkpoints: stacks of experts in 4 bits, as blocks of GGUF files or dequantized to floats.

The stack `x` [E, in, out] is stored as bytes: `x_blocks` [E, out, in / 32, 16] and `x_scales` [E, out, in / 32]. 32
inputs of an output share a power of two, 2**(scale - 127), and are numbers of 4 bits (e2m1), the first of two in the
lower half of a byte (OCP Microscaling Formats 1.0). bfloat16 holds them exactly. Knows files, and no network.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.errors import ModelError
from specchat.weights.tensor_files import TensorFiles

METHOD = "mxfp4"
BLOCK_INPUTS = 32
EXPONENT_BIAS = 127
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCKS, SCALES = "_blocks", "_scales"


@dataclass(frozen=True)
class Mxfp4TensorFiles(TensorFiles):
    dtype: torch.dtype = torch.bfloat16  # of the dequantized weights
    has_scaled_weights = True

    def __contains__(self, name: str) -> bool:
        return name in self.locations or self._is_packed(name)

    def shape(self, name: str) -> tuple[int, ...]:
        if not self._is_packed(name):
            return super().shape(name)
        experts, outputs, blocks, _bytes = super().shape(f"{name}{BLOCKS}")
        return experts, blocks * BLOCK_INPUTS, outputs

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Read some rows of a matrix, or matrices of a stack; 4-bit numbers are dequantized."""
        if not self._is_packed(name):
            return super().read_rows(name, first, last)
        blocks, scales = self._read_parts(name, first, last)
        numbers = torch.tensor([*MAGNITUDES, *(-each for each in MAGNITUDES)])
        pairs = torch.stack((numbers[(blocks & 15).int()], numbers[(blocks >> 4).int()]), dim=-1).flatten(-2)
        weight = torch.ldexp(pairs, scales.int()[..., None] - EXPONENT_BIAS)
        return weight.flatten(-2).mT.to(self.dtype)

    def stacked_blocks(self, name: str, index: int) -> Tensor | None:
        """A matrix of a stack as the blocks of a GGUF file, whose bytes hold numbers i and i + 16, not neighbours."""
        if not self._is_packed(name):
            return None
        blocks, scales = (part[0] for part in self._read_parts(name, index, index + 1))
        codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
        halves = codes[..., :16] | codes[..., 16:] << 4
        return torch.cat((scales[..., None], halves), dim=-1).flatten(1)

    def _read_parts(self, name: str, first: int, last: int) -> tuple[Tensor, Tensor]:
        blocks, scales = (
            super(Mxfp4TensorFiles, self).read_rows(f"{name}{part}", first, last) for part in (BLOCKS, SCALES)
        )
        if blocks.dtype != torch.uint8 or scales.dtype != torch.uint8 or blocks.shape[:-1] != scales.shape:
            raise ModelError(f"{self.source}: {name}{BLOCKS} and {name}{SCALES} do not belong together")
        return blocks, scales

    def _is_packed(self, name: str) -> bool:
        return f"{name}{BLOCKS}" in self.locations and f"{name}{SCALES}" in self.locations


def is_mxfp4(quantization_config: object) -> bool:
    return isinstance(quantization_config, Mapping) and quantization_config.get("quant_method") == METHOD
