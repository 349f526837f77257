"""The draft tree, which every drafter proposes: draft tokens below the last committed token.

A tree knows token ids and their drafters. It knows no model, and no text except its root.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ROOT = 0
ONE_NODE = torch.ones(1, 1, dtype=torch.bool)  # the mask of plain decoding, the same for all its steps


class DraftTree:
    """Draft tokens as a tree, parents before children.

    Node 0, the root, is the last token of the text, so it is always accepted. A chain is a tree without forks; plain
    decoding is a tree with only a root. Every node stores its ancestors as the bits of an integer, so that one call
    builds the attention mask of the whole tree.
    """

    __slots__ = ("_ancestor_bits", "_children", "depths", "is_chain", "parents", "sources", "tokens")

    def __init__(self, root_token: int) -> None:
        self.tokens = [root_token]
        self.parents = [-1]
        self.depths = [0]
        self.sources = ["text"]  # the drafter of each node
        self.is_chain = True
        self._ancestor_bits = [1]
        self._children: dict[tuple[int, int], int] = {}  # (parent, token) -> node

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, parent: int = ROOT, source: str = "") -> int:
        """Add `token` after node `parent` and return its node; an equal child is reused."""
        node = len(self.tokens)
        child = self._children.setdefault((parent, token), node)
        if child == node:
            self.is_chain = self.is_chain and parent == node - 1
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.sources.append(source)
            self._ancestor_bits.append(self._ancestor_bits[parent] | 1 << node)
        return child

    def add_chain(self, tokens: list[int], parent: int = ROOT, source: str = "") -> int:
        """Add `tokens` one after the other; returns the last node."""
        for token in tokens:
            parent = self.add(token, parent, source)
        return parent

    def add_siblings(self, tokens: list[int], parent: int, source: str) -> int:
        """Add each of `tokens` after `parent`, most probable first; returns the node of the first."""
        first, *_others = [self.add(token, parent, source) for token in tokens]
        return first

    def child(self, node: int, token: int) -> int | None:
        return self._children.get((node, token))

    def path_tokens(self, node: int) -> list[int]:
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]

    def first_chain(self, max_draft_tokens: int) -> DraftTree:
        """The chain of first children, at most `max_draft_tokens` long: for targets that support no trees."""
        if self.is_chain and len(self) <= max_draft_tokens + 1:
            return self
        nodes, node = list[int](), ROOT
        while len(nodes) < max_draft_tokens and (children := [n for n, p in enumerate(self.parents) if p == node]):
            node = children[0]
            nodes.append(node)
        return self.prune(nodes)

    def prune(self, nodes: list[int]) -> DraftTree:
        """Keep the root and these nodes, ascending and closed under parents. Pruning never changes the text.

        If the root has children 1 and 3, and 2 is a child of 1, `prune([1, 3])` is a root with two leaves.
        """
        if len(nodes) == len(self) - 1:
            return self
        pruned, new_nodes = DraftTree(self.tokens[ROOT]), {ROOT: ROOT}
        for node in nodes:
            new_nodes[node] = pruned.add(self.tokens[node], new_nodes[self.parents[node]], self.sources[node])
        return pruned

    def attention_mask(self) -> Tensor:
        """mask[i, j]: node i attends to node j, which is an ancestor of i or i itself. [N, N] bool"""
        count = len(self)
        if count == 1:
            return ONE_NODE
        if self.is_chain:
            return torch.ones(count, count, dtype=torch.bool).tril_()
        width = (count + 7) // 8
        packed = np.frombuffer(b"".join(bits.to_bytes(width, "little") for bits in self._ancestor_bits), np.uint8)
        rows = np.unpackbits(packed.reshape(count, width), axis=1, count=count, bitorder="little")
        return torch.from_numpy(rows.view(np.bool_))
