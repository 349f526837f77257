"""The rows of one forward pass: tokens, positions, and the attention mask.

Every model uses these classes. Where the kernels are not batch invariant, all passes of `exact` mode have the same
number of rows and look at the same number of keys, so that each row is rounded identically in plain and in speculative
decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLocation, Slot
from specchat.engine.device import copy_to_device
from specchat.engine.tree import ONE_NODE, DraftTree

if TYPE_CHECKING:
    from specchat.forward.attention import AttentionMask
    from specchat.forward.llama.gated_delta_net import RecurrentPass

EXACT_ROWS = 16
MASK_BITS = 64  # nodes of an ancestor mask


@dataclass(frozen=True)
class BatchLimits:
    prefill_chunk: int = 128  # prompt tokens in one pass
    max_rows: int = 128  # nodes of a tree
    exact: bool = False  # pad every pass to the same size

    def __post_init__(self) -> None:
        if self.exact:
            object.__setattr__(self, "max_rows", min(self.max_rows, EXACT_ROWS))

    def nodes(self, tree: DraftTree) -> Nodes:
        """The nodes of a tree; padded in exact mode."""
        nodes = Nodes(tree.tokens, tree.depths, tree.attention_mask())
        return nodes.padded(self.max_rows) if self.exact else nodes

    def batch_for_nodes(self, nodes: Nodes, cache: KVCache) -> RowBatch:
        """A batch of nodes that follow the committed rows and see all of them."""
        count, seen = len(nodes.tokens), cache.length
        positions = torch.tensor([depth + seen for depth in nodes.depths])
        if count == 1 and not self.exact:
            return RowBatch(nodes.tokens, positions, ONE_NODE.expand(1, seen + 1), seen, sees_all=True)
        kv_length = cache.require_slot().rows if self.exact else seen + count
        mask = torch.zeros(count, kv_length, dtype=torch.bool)
        mask[:, :seen] = True
        mask[:, seen : seen + count] = nodes.attention_mask
        return RowBatch(nodes.tokens, positions, mask, seen)


@dataclass(frozen=True)
class ForwardDepth:
    layers: int
    hidden_state_layers: tuple[int, ...] = ()

    def states_before(self, layer: int) -> tuple[int, ...]:
        """The layers before this one whose states an output contains."""
        return tuple(each for each in self.hidden_state_layers if 0 <= each < layer)


@dataclass(frozen=True)
class HiddenStates:
    final: Tensor  # after the final norm [N, D]
    selected: Tensor | None  # those of the requested layers, concatenated [N, layers * D]


@dataclass(frozen=True)
class CacheRows:
    """Where a pass writes its rows and what they see, in numbers of the device that a CUDA graph reads at every replay.

    Node n is written to row `first_row + length + n`. Its ancestors are those before it on its path, and itself. A pass
    may compute later nodes of a tree: its rows are those from `first_node` on, and see nodes of passes before it.
    """

    kv: Callable[[int], tuple[Tensor, Tensor]]  # layer -> keys and values [1, KV, rows, size]
    first_row: Tensor  # []: row 0 of the sequence
    length: Tensor  # []: committed rows, which every node sees
    ancestors: Tensor | None  # int64 [N]: bit i stands for node i; None: each node sees all before it
    kv_length: int  # at least the rows that any node sees; known to the host, and fixed in a CUDA graph
    first_node: int = 0
    window: int | None = None  # positions that a row of any layer sees at most


@dataclass(frozen=True)
class ForwardBatch:
    positions: Tensor  # [N]
    masks: Mapping[int | None, AttentionMask | None]  # of each sliding window (key None: full attention)
    write_kv: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]  # layer, new keys, values -> all visible ones
    kv_location: Callable[[int], KVLocation] | None = None  # of a layer, for kernels that write rows by address
    cache_rows: CacheRows | None = None  # for kernels of a GPU; None where no mask of bits can say what a row sees
    recurrent: RecurrentPass | None = None  # for recurrent layers
    read_kv: Callable[[int], tuple[Tensor, Tensor]] | None = None  # layer -> visible keys and values, for later layers
    kv_slot: Slot | None = None  # what `kv_location` says of each layer lies in it


@dataclass(frozen=True)
class Nodes:
    """Tokens of a pass before their position in the text is known.

    Tokens that were just sampled may be a tensor that is still on the device; the host does not wait for them.
    """

    tokens: list[int] | Tensor  # [N]
    depths: list[int]  # [N]
    attention_mask: Tensor  # bool [N, N]
    is_prompt: bool = False  # all of them will be committed

    @property
    def parents(self) -> list[int]:
        """The last node that each node sees before itself; -1 for a root. [N]"""
        earlier = self.attention_mask.tril(-1)
        places = torch.arange(len(self.depths)).masked_fill(~earlier, -1)
        return places.amax(dim=1).tolist()

    def padded(self, count: int) -> Nodes:
        """With padding nodes at the end, which see only themselves and which no other node sees."""
        padding = count - len(self.depths)
        if padding <= 0:
            return self
        depths = self.depths + self.depths[:1] * padding
        mask = torch.block_diag(self.attention_mask, torch.eye(padding, dtype=torch.bool)).bool()
        if isinstance(self.tokens, Tensor):
            return Nodes(functional.pad(self.tokens, (0, padding)), depths, mask, self.is_prompt)
        return Nodes(self.tokens + self.tokens[:1] * padding, depths, mask, self.is_prompt)


def chain_nodes(tokens: list[int] | Tensor) -> Nodes:
    """Consecutive tokens of a prompt, each of which sees those before it."""
    count = len(tokens)
    return Nodes(tokens, list(range(count)), torch.ones(count, count, dtype=torch.bool).tril_(), is_prompt=True)


def ancestor_masks(node_mask: Tensor) -> Tensor:
    """The nodes that each node sees, as the bits of one number. bool [N, N] -> int64 [N]

    >>> ancestor_masks(torch.tensor([[True, False], [True, True]])).tolist()
    [1, 3]
    """
    return (node_mask.long() << torch.arange(node_mask.shape[1], device=node_mask.device)).sum(dim=1)


@dataclass(frozen=True)
class RowBatch:
    """Tokens, their positions in the text, and the rows of the KV cache that each may see. On the host."""

    tokens: list[int] | Tensor  # [N]
    positions: Tensor  # [N]
    attention_mask: Tensor  # bool [N, kv_length]
    committed_length: int  # rows before the new ones
    first_position: int = 0  # position of row 0: above 0 in a cache that has dropped its oldest rows
    sees_all: bool = False  # known without a look at the mask

    @property
    def kv_length(self) -> int:
        """Number of rows of keys and values that the pass looks at."""
        return self.attention_mask.shape[1]

    def to_device(
        self, cache: KVCache, masks: Mapping[int | None, AttentionMask | None], device: torch.device
    ) -> ForwardBatch:
        return ForwardBatch(
            copy_to_device(self.positions, device),
            masks,
            partial(cache.write, kv_length=self.kv_length),
            partial(cache.kv_location, kv_length=self.kv_length),
            read_kv=partial(cache.read, kv_length=self.kv_length),
            kv_slot=cache.slot,
        )

    def cache_rows(self, cache: KVCache, device: torch.device) -> CacheRows | None:
        """Where the rows lie, for kernels of a GPU; None for trees with more nodes than an ancestor mask has bits."""
        count, first = len(self.positions), self.committed_length
        node_mask, slot = self.attention_mask[:, first : first + count], cache.require_slot()
        is_wide = count > MASK_BITS
        if is_wide and not torch.equal(node_mask, torch.ones_like(node_mask).tril_()):
            return None
        masks = torch.empty(0, dtype=torch.long) if is_wide else ancestor_masks(node_mask)
        numbers = copy_to_device(torch.cat((torch.tensor([0, first]), masks)), device)
        ancestors = None if is_wide else numbers[2:]
        return CacheRows(slot.layers.__getitem__, numbers[0], numbers[1], ancestors, self.kv_length)

    @property
    def kv_positions(self) -> Tensor:
        """Position of every row that the pass looks at. [kv_length]"""
        positions = torch.arange(self.kv_length) + self.first_position
        positions[self.committed_length : self.committed_length + len(self.tokens)] = self.positions
        return positions

    def sliding_window_mask(self, sliding_window: int) -> Tensor:
        """The attention mask of a layer that sees rows less than `sliding_window` positions away. bool [N, kv_length]

        Rows of a tree are not in the order of their positions, so the window cannot be cut by row.
        """
        return self.attention_mask & (self.kv_positions[None, :] > self.positions[:, None] - sliding_window)

    def chunk_mask(self, chunk_size: int) -> Tensor:
        """The attention mask of a layer that sees rows of its own chunk of the text only. bool [N, kv_length]"""
        return self.attention_mask & (self.kv_positions[None, :] // chunk_size == self.positions[:, None] // chunk_size)
