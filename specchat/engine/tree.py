"""The one shape that every drafter speaks: guesses that hang from the last sure token.

A tree knows token ids and who guessed them. It knows no model, and no text but its own root.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ROOT = 0


@dataclass(frozen=True, eq=False)
class DraftSample:
    """A guess that came out of dice of the drafter's own, and what these were thrown over.

    `chances` is the distribution that the token was really drawn from, after every rule and without what the drafter
    has no column for: a token that is not among `ids` had no chance.
    """

    token: int
    token_ids: Tensor  # the target's token ids [C]
    probabilities: Tensor  # q, which adds up to 1 [C]


class DraftTree:
    """Guessed continuations of the text, parents before children.

    Node 0 is the last token of the text itself, so it is always kept. A chain is a tree without forks; plain
    decoding is a tree that is only its root. Every node carries its ancestors as the bits of an integer, so that
    the attention mask of the whole tree is built in one call.
    """

    __slots__ = ("_ancestor_bits", "_children", "depths", "samples", "is_chain", "parents", "sources", "tokens")

    def __init__(self, root_token: int) -> None:
        self.tokens = [root_token]
        self.parents = [-1]
        self.depths = [0]
        self.sources = ["text"]  # who guessed each node
        self.is_chain = True
        self.samples: dict[int, DraftSample] = {}  # by the node after which it was drawn; for the classic rule
        self._ancestor_bits = [1]
        self._children: dict[tuple[int, int], int] = {}  # (parent, token) -> node

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, parent: int = ROOT, source: str = "") -> int:
        """Guess `token` after node `parent`; an equal guess is found, not repeated."""
        node = len(self.tokens)
        found = self._children.setdefault((parent, token), node)
        if found == node:
            self.is_chain = self.is_chain and parent == node - 1
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1)
            self.sources.append(source)
            self._ancestor_bits.append(self._ancestor_bits[parent] | 1 << node)
        return found

    def add_sample(self, sample: DraftSample, parent: int, source: str) -> int:
        """Guess the token that was drawn after `parent`, and report the draw; returns the node.

        The draw belongs to the parent: it is judged wherever the target speaks after that node, also when the guess
        itself was cut off.
        """
        self.samples[parent] = sample
        return self.add(sample.token, parent, source)

    def add_chain(self, tokens: list[int], parent: int = ROOT, source: str = "") -> int:
        """Guess `tokens` one after the other; returns the last node."""
        for token in tokens:
            parent = self.add(token, parent, source)
        return parent

    def add_siblings(self, tokens: list[int], parent: int, source: str) -> int:
        """Guess each of `tokens` after `parent`, the likeliest first; returns the node of that one."""
        first, *_others = [self.add(token, parent, source) for token in tokens]
        return first

    def child(self, node: int, token: int) -> int | None:
        """The guess of `token` after `node`, if anybody made it."""
        return self._children.get((node, token))

    def path_tokens(self, node: int) -> list[int]:
        """The guessed tokens from below the root down to `node`."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]

    def first_chain(self, max_draft_tokens: int) -> DraftTree:
        """The chain of first children, at most `longest` guesses: for targets that cannot take a tree."""
        if self.is_chain and len(self) <= max_draft_tokens + 1:
            return self
        nodes, node = list[int](), ROOT
        while len(nodes) < max_draft_tokens and (children := [n for n, p in enumerate(self.parents) if p == node]):
            node = children[0]
            nodes.append(node)
        return self.prune(nodes)

    def prune(self, nodes: list[int]) -> DraftTree:
        """Only these nodes, ascending and closed under parents; the root stays. Fewer guesses never change the text.

        Of a root with children 1 and 3, where 2 hangs from 1, `cut([1, 3])` is a root with two leaves. What was drawn
        after a node that stays is still reported.
        """
        if len(nodes) == len(self) - 1:
            return self
        fewer, place = DraftTree(self.tokens[ROOT]), {ROOT: ROOT}
        for node in nodes:
            place[node] = fewer.add(self.tokens[node], place[self.parents[node]], self.sources[node])
        fewer.samples = {place[node]: draw for node, draw in self.samples.items() if node in place}
        return fewer

    def attention_mask(self) -> Tensor:
        """ancestors[i, j]: node i attends to node j, which is above it or itself. [N, N] bool"""
        count = len(self)
        if self.is_chain:
            return torch.ones(count, count, dtype=torch.bool).tril_()
        width = (count + 7) // 8
        packed = np.frombuffer(b"".join(bits.to_bytes(width, "little") for bits in self._ancestor_bits), np.uint8)
        rows = np.unpackbits(packed.reshape(count, width), axis=1, count=count, bitorder="little")
        return torch.from_numpy(rows.view(np.bool_))
