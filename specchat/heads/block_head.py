"""Heads that fill a block of masks in one pass: DFlash (arXiv 2602.06036).

The text enters as keys and values alone: each layer makes them of the target's tapped states, once for every token. A
block is the last sure token and masks behind it; its slots see all of the text and one another, and each slot guesses
the token of its own place (or, where the head was trained so, the token after it). Nothing of a block stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache
from specchat.engine.model import Model
from specchat.forward.attention import mask_of
from specchat.forward.batch import Pass
from specchat.heads.layers import Stack
from specchat.heads.spec import HeadSpec
from specchat.models.tensor_files import Loader


class BlockHead:
    """A head that says in one pass what stands in the next places."""

    def __init__(self, spec: HeadSpec, loader: Loader, target: Model) -> None:
        assert spec.slots is not None, "a head without slots passed inspection"
        self.kind, self.window, self.slots = spec.kind, spec.window, spec.slots
        self.count = spec.count
        self.taps = spec.taps_for(len(target.pool.layout.shapes))
        self._stack = stack = Stack(spec, loader, target.pool.layout.dtype)
        self.pool = stack.pool
        self._fc = loader.product("fc")
        self._of_feature, self._norm = stack.weight("feature_norm"), stack.weight("norm")
        self._table = loader.optional("embed_tokens.weight")
        self._score = loader.product("lm_head") if "lm_head.weight" in spec.tensors else target.score
        self._embed = target.embed
        self.ids = spec.ids().to(loader.device) if "d2t" in spec.tensors else None
        self.bytes = loader.bytes

    @torch.inference_mode()
    def read(self, features: Tensor, position: int, cache: KVCache) -> None:
        """Take in the target's states of the tokens from `position` on, and commit them. [n, taps * D]"""
        stack, rows = self._stack, self._stack.normed(self._fc(features), self._of_feature)
        turn = stack.turn(torch.arange(position, position + len(rows)), rows)
        for index, layer in enumerate(stack.layers):
            cache.write(index, *layer.attention.read(rows, turn).offered)
        cache.commit(list(range(len(rows))))

    @torch.inference_mode()
    def fill(
        self, tokens: Sequence[int], positions: Sequence[int], cache: KVCache, first: int = 0, ahead: int | None = None
    ) -> Tensor:
        """What the head says of the next `ahead` places (or `count`) behind each sure token. [n, ahead, Vd]

        Each token begins a block, which sees no other block and the text before it. `first`: the position of row 0 of
        the cache. The cache is left as it was found, but needs room for `n * slots.size` more rows.
        """
        stack, slots = self._stack, self.slots
        written = torch.full((len(tokens), slots.size), slots.mask)
        written[:, 0] = torch.tensor(tokens)
        starts = torch.tensor(positions).repeat_interleave(slots.size)
        nodes = self._laid_out(written, starts, cache.length, first)
        stream = self._embedded(written.flatten().to(stack.pool.layout.device))
        windows = {layer.window for layer in stack.layers}
        turn, masks = stack.turn(nodes.positions, stream), {w: self._mask(nodes, starts, w, stream) for w in windows}
        for index, layer in enumerate(stack.layers):
            rows = stack.normed(stream, layer.before_attention)
            stream = stack.through(index, stream, rows, turn, masks[layer.window], cache, nodes.width)
        said = stack.normed(stream, self._norm).view(len(tokens), slots.size, -1)
        said = (said if slots.first_guesses else said[:, 1:])[:, :ahead]
        return self._score(said.flatten(0, 1)).view(*said.shape[:2], -1)

    def _laid_out(self, written: Tensor, starts: Tensor, length: int, first: int) -> Pass:
        """Blocks [n, size] behind `length` rows of text: each sees its own slots and the text before it."""
        count, size = written.shape
        block = torch.arange(count).repeat_interleave(size)
        text = torch.arange(first, first + length)
        before, near = text[None, :] < starts[:, None], text[None, :] > starts[:, None] - self.window
        sees = torch.cat((before & near, block[None, :] == block[:, None]), dim=1)
        return Pass(written.flatten().tolist(), starts + torch.arange(size).repeat(count), sees, length, first)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self._embed(tokens) if self._table is None else functional.embedding(tokens, self._table)

    def _mask(self, nodes: Pass, starts: Tensor, window: int | None, like: Tensor) -> Tensor | None:
        """What is added to the scores of a layer; with a window, mostly no slot sees those behind it."""
        shared, slots = self._stack.sizes.heads // self._stack.sizes.kv_heads, self.slots
        if window is None:
            return mask_of(nodes, None, shared, like)
        rows = torch.arange(nodes.width) + nodes.first
        rows[nodes.length :] = nodes.positions
        oldest = starts - window if slots.windows_from_start else nodes.positions - window + 1
        sees = nodes.sees & (rows[None, :] >= oldest[:, None])
        if not slots.windows_look_ahead:
            sees &= rows[None, :] <= nodes.positions[:, None]
        return mask_of(replace(nodes, sees=sees), None, shared, like)
