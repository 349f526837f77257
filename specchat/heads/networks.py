"""Heads that compute: what draws a guess from the hidden states that the target leaves behind.

A `FeatureHead` is a block over pairs (feature of token t, embedding of token t+1) and speaks of token t+2: EAGLE-1,
EAGLE-2 (the same weights), EAGLE-3 and MTP. What tells them apart is which tensors are there and a few facts of their
`HeadSpec`. A `MedusaHead` reads the last feature alone and speaks of several tokens ahead. Heads that fill a whole
block at once are in `blocks.py`.

Knows tensors by canonical name; how publishers spell them is the business of `checkpoints.py`, and which guess to
follow that of the drafters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache
from specchat.engine.model import FINAL, Model
from specchat.errors import ModelError
from specchat.forward.attention import mask_of
from specchat.forward.batch import Pass
from specchat.forward.linear import Product
from specchat.heads.block_head import BlockHead
from specchat.heads.layers import Stack
from specchat.heads.spec import DFLASH, MEDUSA, HeadSpec, TargetFacts, fits
from specchat.models.tensor_files import Loader


@dataclass(frozen=True)
class HeadOutput:
    """What a head says at the rows that it was asked about."""

    logits: Tensor  # [scored, Vd]
    hidden: Tensor  # [scored, D], to be fed back in place of the feature that nobody knows yet


class FeatureHead:
    """A block that turns pairs into features and logits, over a cache of its own.

    Its embeddings are not always the target's: take them from `embed`.
    """

    def __init__(self, spec: HeadSpec, loader: Loader, target: Model) -> None:
        self.kind, self.window, self.wiring = spec.kind, spec.window, spec.wiring
        self.taps = spec.taps_for(len(target.pool.layout.shapes))
        self._stack = stack = Stack(spec, loader, target.pool.layout.dtype)
        self.pool = stack.pool
        self._tap_norms = [stack.weight(f"fc_norm.{index}") for index in range(len(self.taps))]
        self._all_taps_norm = stack.weight("input_norm")
        self._fc = loader.product("fc") if "fc.weight" in spec.tensors else None
        self._of_embedding, self._of_feature = stack.weight("embedding_norm"), stack.weight("feature_norm")
        self._join = loader.product("join") if "join.weight" in spec.tensors else None
        self._norm = stack.weight("norm")
        self._table = loader.optional("embed_tokens.weight")
        own = loader.product("lm_head") if "lm_head.weight" in spec.tensors else None
        self._score = own or target.score
        self._embed = target.embed
        self.ids = spec.ids().to(loader.device) if "d2t" in spec.tensors else None
        self.bytes = loader.bytes

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of tokens as this head was trained with them, its own or the target's. [n] -> [n, D]"""
        return self._embed(tokens) if self._table is None else functional.embedding(tokens, self._table)

    @torch.inference_mode()
    def fuse(self, features: Tensor) -> Tensor:
        """What the head makes of the tapped states of a token: EAGLE-3's `fc`. [n, taps * D] -> [n, D]"""
        if self._fc is None:
            return features
        parts = features.chunk(len(self.taps), dim=-1)
        normed = self._stack.normed
        parts = [normed(part, weight) for part, weight in zip(parts, self._tap_norms, strict=True)]
        return self._fc(normed(torch.cat(parts, dim=-1), self._all_taps_norm))

    @torch.inference_mode()
    def run(
        self, hidden: Tensor, embedded: Tensor, nodes: Pass, cache: KVCache, scored: int | None = None
    ) -> HeadOutput:
        """Read pairs: features [N, D], true and fused or its own output, with embeddings [N, D] of the tokens after.

        Keys and values of the N rows go behind `cache.length` and stay uncommitted, as those of a target's pass. Says
        something of the last `scored` rows only, or of all: over a prompt, an output matrix is most of the work.
        """
        stack, (stream, rows) = self._stack, self._joined(hidden, embedded)
        turn, shared = stack.turn(nodes.positions, stream), stack.sizes.heads // stack.sizes.kv_heads
        masks = {window: mask_of(nodes, window, shared, stream) for window in {layer.window for layer in stack.layers}}
        for index, layer in enumerate(stack.layers):
            rows = rows if index == 0 else stack.normed(stream, layer.before_attention)
            stream = stack.through(index, stream, rows, turn, masks[layer.window], cache, nodes.width)
        stream = stream if scored is None else stream[len(stream) - scored :]
        normed = stack.normed(stream, self._norm)
        return HeadOutput(self._score(normed), normed if self.wiring.feeds_normed else stream)

    def _joined(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream [N, D], and what the first attention reads: [N, D], or the pair itself [N, 2D]."""
        normed = self._stack.normed
        embedding, feature = normed(embedded, self._of_embedding), normed(hidden, self._of_feature)
        pair = torch.cat((feature, embedding) if self.wiring.feature_first else (embedding, feature), dim=-1)
        if self._join is None:
            return feature if self.wiring.residual_is_normed else hidden, pair
        stream = self._join(pair)
        return stream, normed(stream, self._stack.layers[0].before_attention)


class MedusaHead:
    """Residual blocks over the last feature; the k-th speaks of the token k places after the next one.

    arXiv 2401.10774. The first kind brings an output matrix of its own for every place, the second shares the target's.
    """

    taps = (FINAL,)

    def __init__(self, spec: HeadSpec, loader: Loader, target: Model) -> None:
        self.count = spec.count
        depths = [
            sum(f"blocks.{index}.{depth}.weight" in spec.tensors for depth in range(9)) for index in range(self.count)
        ]
        self._blocks = [
            [loader.product(f"blocks.{index}.{depth}") for depth in range(deep)] for index, deep in enumerate(depths)
        ]
        names = [f"heads.{index}" for index in range(self.count)]
        self._heads = [loader.product(name) for name in names] if "heads.0.weight" in spec.tensors else []
        self._score, self.bytes = target.score, loader.bytes

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> list[Tensor]:
        """Features after the final norm [n, D] -> logits [n, V] of the tokens t+2, t+3, …"""
        ahead = [self._through(blocks, hidden) for blocks in self._blocks]
        if self._heads:
            return [head(rows) for head, rows in zip(self._heads, ahead, strict=True)]
        return list(self._score(torch.cat(ahead)).split(len(hidden)))

    def _through(self, blocks: list[Product], rows: Tensor) -> Tensor:
        for block in blocks:
            rows = rows + functional.silu(block(rows))
        return rows


LoadedHead = FeatureHead | MedusaHead | BlockHead


def load_head(spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device) -> LoadedHead:
    """The network of a head, beside the target that it was trained for; ModelError says why the two are no pair.

    It runs in the dtype of the target (`dtype` None), whose states, embeddings and output it shares.
    """
    width = target.embed(torch.zeros(1, dtype=torch.long, device=device)).shape[-1]
    facts = TargetFacts(width, len(target.pool.layout.shapes) or None, target.vocabulary)
    if reasons := fits(spec, facts):
        raise ModelError(f"{spec.source}: this {spec.format} head does not fit the target: {'; '.join(reasons)}")
    loader = Loader(spec.tensors, dtype or target.pool.layout.dtype, device, careful=True)
    kinds = {MEDUSA: MedusaHead, DFLASH: BlockHead}
    return kinds.get(spec.kind, FeatureHead)(spec, loader, target)
