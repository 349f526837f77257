"""The nodes of one pass, laid out: which token stands where, and which rows it may see.

Shared by every model. In `exact` mode all passes have one width over one width of keys, so that each row is rounded
alike in plain and in speculative decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.tree import DraftTree

EXACT_WIDTH = 16


@dataclass(frozen=True)
class PassShape:
    """How wide passes are: tokens of a prompt at once, most nodes of a tree, and whether rounding is kept alike."""

    chunk: int = 128
    widest: int = 128
    exact: bool = False

    def __post_init__(self) -> None:
        if self.exact:
            object.__setattr__(self, "widest", min(self.widest, EXACT_WIDTH))

    def of_tree(self, tree: DraftTree, cache: KVCache) -> Pass:
        """A pass over the nodes of a tree, behind the sure rows; padded with idle nodes in exact mode."""
        tokens, depths, sees = tree.tokens, tree.depths, tree.ancestors()
        if idle := self.widest - len(tree) if self.exact else 0:
            tokens, depths = tokens + tokens[:1] * idle, depths + depths[:1] * idle
            sees = torch.block_diag(sees, torch.eye(idle, dtype=torch.bool)).bool()
        return self._behind(cache, tokens, torch.tensor(depths), sees)

    def of_chunk(self, tokens: list[int], cache: KVCache) -> Pass:
        """A pass over a chunk of a prompt: each token sees what stands before it."""
        sees = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril_()
        return self._behind(cache, tokens, torch.arange(len(tokens)), sees)

    def _behind(self, cache: KVCache, tokens: list[int], depths: Tensor, sees: Tensor) -> Pass:
        width = cache.rows().rows if self.exact else cache.length + len(tokens)
        rows = torch.zeros(len(tokens), width, dtype=torch.bool)
        rows[:, : cache.length] = True
        rows[:, cache.length : cache.length + len(tokens)] = sees
        return Pass(tokens, depths + cache.length, rows, cache.length)


@dataclass(frozen=True)
class Pass:
    """Tokens, their positions in the text, and the rows that each may see."""

    tokens: list[int]  # [N]
    positions: Tensor  # [N]
    sees: Tensor  # bool [N, width]
    length: int  # sure rows
    first: int = 0  # position of row 0: above 0 in a cache that has dropped its oldest rows

    @property
    def width(self) -> int:
        """Rows of keys and values that the pass looks at."""
        return self.sees.shape[1]

    def near(self, window: int) -> Tensor:
        """What a layer with a sliding window sees: rows less than `window` *positions* away. bool [N, width]

        Rows of a tree are not in the order of their positions, so the window cannot be cut by row.
        """
        rows = torch.arange(self.width) + self.first
        rows[self.length : self.length + len(self.tokens)] = self.positions
        return self.sees & (rows[None, :] > self.positions[:, None] - window)
