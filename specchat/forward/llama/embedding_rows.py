"""Input embeddings that stay as they are stored: in a file, or as blocks on a GPU. A pass reads the rows of its tokens.

A text has few of the tokens of a vocabulary, so a table of all of them is mostly memory that nothing reads. Knows
tensors; knows no file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from specchat.forward.linear.block_linear import BlockLinear, BlockWeight

KEPT_BYTES = 2**24  # of rows that were read
ReadTokenRows = Callable[[Sequence[int]], Tensor]  # tokens -> [tokens, D], on the CPU


class EmbeddingRows:
    """A table on the CPU whose rows are read when a pass has their tokens for the first time. Thread-safe."""

    device = torch.device("cpu")

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, read_rows: ReadTokenRows) -> None:
        self.shape, self.dtype, self._read = shape, dtype, read_rows
        tokens, width = shape
        self._capacity = min(tokens, max(KEPT_BYTES // (width * dtype.itemsize), 1))
        self._rows = torch.empty(self._capacity, width, dtype=dtype)
        self._places = dict[int, int]()  # of the row of each token
        self._lock = Lock()

    def __getitem__(self, tokens: Tensor, /) -> Tensor:
        """The rows of these tokens. [..., D]"""
        found = self.rows_of(tokens.flatten().tolist())
        return found if tokens.dim() == 1 else found.view(*tokens.shape, self.shape[1])

    def rows_of(self, tokens: list[int]) -> Tensor:
        """The rows of these tokens. [N, D] A pass over one token has cold caches: two operations of torch cost less."""
        with self._lock:
            places = self._places
            if missing := sorted({token for token in tokens if token not in places}):
                if len(places) + len(missing) > self._capacity:
                    missing = sorted(set(tokens))
                    if len(missing) > self._capacity:
                        return self._read(tokens)
                    places.clear()
                end = len(places) + len(missing)
                self._rows[len(places) : end] = self._read(missing)
                places.update(zip(missing, range(len(places), end), strict=True))
            if len(tokens) == 1:
                return self._rows.narrow(0, places[tokens[0]], 1).clone()
            return self._rows.index_select(0, torch.tensor([places[token] for token in tokens], dtype=torch.long))


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
