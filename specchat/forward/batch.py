"""The nodes of one pass, laid out: which token stands where, and which rows it may see.

Shared by every model. In `exact` mode all passes have one width over one width of keys, so that each row is rounded
alike in plain and in speculative decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLocation
from specchat.engine.tree import DraftTree

EXACT_ROWS = 16


@dataclass(frozen=True)
class BatchLimits:
    """How wide passes are: tokens of a prompt at once, most nodes of a tree, and whether rounding is kept alike."""

    prefill_chunk: int = 128
    max_rows: int = 128
    exact: bool = False

    def __post_init__(self) -> None:
        if self.exact:
            object.__setattr__(self, "widest", min(self.max_rows, EXACT_ROWS))

    def nodes(self, tree: DraftTree) -> Nodes:
        """The nodes of a tree; padded with idle ones in exact mode."""
        nodes = Nodes(tree.tokens, tree.depths, tree.attention_mask())
        return nodes.padded(self.max_rows) if self.exact else nodes

    def batch_for_tree(self, tree: DraftTree, cache: KVCache) -> RowBatch:
        """A pass over the nodes of a tree, behind the sure rows; padded with idle nodes in exact mode."""
        return self.batch_for_nodes(self.nodes(tree), cache)

    def batch_for_nodes(self, nodes: Nodes, cache: KVCache) -> RowBatch:
        """A pass over nodes that stand behind the sure rows and see all of them."""
        count = len(nodes.tokens)
        width = cache.require_slot().rows if self.exact else cache.length + count
        rows = torch.zeros(count, width, dtype=torch.bool)
        rows[:, : cache.length] = True
        rows[:, cache.length : cache.length + count] = nodes.attention_mask
        return RowBatch(nodes.tokens, torch.tensor(nodes.depths) + cache.length, rows, cache.length)


@dataclass(frozen=True)
class ForwardDepth:
    """How far a pass goes: through so many layers, past these taps."""

    layers: int
    hidden_state_layers: tuple[int, ...] = ()


@dataclass(frozen=True)
class HiddenStates:
    """What a pass leaves: states after the final norm, and the tapped ones side by side."""

    final: Tensor  # [N, D]
    selected: Tensor | None  # [N, taps * D]


@dataclass(frozen=True)
class ForwardBatch:
    """A pass on the device: all that layers want to know of it."""

    tokens: Tensor  # [N]
    positions: Tensor  # [N]
    masks: Mapping[int | None, Tensor | None]  # what is added to scores, by how far a layer looks back
    write_kv: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]  # layer, new keys, values -> all that it looks at
    kv_location: Callable[[int], KVLocation] | None = (
        None  # of a layer's rows, for who writes and looks at them by address
    )
    is_batch_invariant: bool = False  # each row is to be computed as it would be in any other company


@dataclass(frozen=True)
class Nodes:
    """What a pass is over, wherever in the text: tokens, how deep each stands, and which of them each may see.

    Tokens that were picked a moment ago may still be on the device, where nobody waits for them.
    """

    tokens: list[int] | Tensor  # [N]
    depths: list[int]  # [N]
    attention_mask: Tensor  # bool [N, N]

    def padded(self, count: int) -> Nodes:
        """With idle nodes behind them, which see themselves and nobody looks at."""
        idle = count - len(self.depths)
        if idle <= 0:
            return self
        sees = torch.block_diag(self.attention_mask, torch.eye(idle, dtype=torch.bool)).bool()
        if isinstance(self.tokens, Tensor):
            return Nodes(functional.pad(self.tokens, (0, idle)), self.depths + self.depths[:1] * idle, sees)
        return Nodes(self.tokens + self.tokens[:1] * idle, self.depths + self.depths[:1] * idle, sees)


def chain_nodes(tokens: list[int] | Tensor) -> Nodes:
    """Tokens one after the other, each of which sees those before it."""
    count = len(tokens)
    return Nodes(tokens, list(range(count)), torch.ones(count, count, dtype=torch.bool).tril_())


@dataclass(frozen=True)
class RowBatch:
    """Tokens, their positions in the text, and the rows that each may see."""

    tokens: list[int] | Tensor  # [N]
    positions: Tensor  # [N]
    attention_mask: Tensor  # bool [N, width]
    committed_length: int  # sure rows
    first_position: int = 0  # position of row 0: above 0 in a cache that has dropped its oldest rows

    @property
    def kv_length(self) -> int:
        """Rows of keys and values that the pass looks at."""
        return self.attention_mask.shape[1]

    def sliding_window_mask(self, sliding_window: int) -> Tensor:
        """What a layer with a sliding window sees: rows less than `window` *positions* away. bool [N, width]

        Rows of a tree are not in the order of their positions, so the window cannot be cut by row.
        """
        rows = torch.arange(self.kv_length) + self.first_position
        rows[self.committed_length : self.committed_length + len(self.tokens)] = self.positions
        return self.attention_mask & (rows[None, :] > self.positions[:, None] - sliding_window)
