"""Input embeddings that stay as they are stored: in a file, or as blocks on a GPU. A pass reads the rows of its tokens.

A text has few of the tokens of a vocabulary, so a table of all of them is mostly memory that nothing reads. Knows
tensors; knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from specchat.forward.linear.block_linear import BlockLinear, BlockWeight

KEPT_BYTES = 2**24  # of rows that were read
ABSENT = -1  # the place of a row that was not read yet
ReadTokenRows = Callable[[Sequence[int]], Tensor]  # tokens -> [tokens, D], on the CPU


class EmbeddingRows:
    """A table on the CPU whose rows are read when a pass has their tokens for the first time. Thread-safe."""

    device = torch.device("cpu")

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, read_rows: ReadTokenRows) -> None:
        self.shape, self.dtype = shape, dtype
        self._read: Callable[[Tensor], Tensor] = lambda tokens: read_rows(tokens.tolist())
        tokens, width = shape
        self._capacity = min(tokens, max(KEPT_BYTES // (width * dtype.itemsize), 1))
        self._rows = torch.empty(self._capacity, width, dtype=dtype)
        self._places = torch.full((tokens,), ABSENT)  # of the row of each token
        self._count, self._lock = 0, Lock()

    def __getitem__(self, tokens: Tensor, /) -> Tensor:
        """The rows of these tokens. [..., D]"""
        with self._lock:
            places = self._places[tokens]
            if not bool((places == ABSENT).any()):
                return self._rows[places]
            missing = tokens[places == ABSENT].unique()
            if self._count + len(missing) > self._capacity:
                distinct, index = tokens.unique(return_inverse=True)
                if len(distinct) > self._capacity:
                    return self._read(distinct)[index]
                missing = distinct
                self._places.fill_(ABSENT)
                self._count = 0
            end = self._count + len(missing)
            self._rows[self._count : end] = self._read(missing)
            self._places[missing] = torch.arange(self._count, end)
            self._count = end
            return self._rows[self._places[tokens]]


@dataclass(frozen=True)
class BlockEmbedding:
    """A table of blocks on a GPU, of which a pass dequantizes the rows of its tokens. Tied, it is the output matrix."""

    linear: BlockLinear
    dtype: torch.dtype

    @property
    def weight(self) -> BlockWeight:
        return self.linear.parts[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.weight.out_features, self.weight.in_features

    @property
    def device(self) -> torch.device:
        return self.weight.low.device

    def __getitem__(self, tokens: Tensor, /) -> Tensor:
        """The rows of these tokens. [..., D]"""
        return self.weight.dequantized(self.dtype, tokens.flatten()).view(*tokens.shape, self.shape[1])


EmbeddingTable = Tensor | EmbeddingRows | BlockEmbedding  # [V, D]: the input embeddings of a pass
