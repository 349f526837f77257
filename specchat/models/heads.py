"""Heads that compute: what draws a guess from the hidden states that the target leaves behind.

A `FeatureHead` is a block over pairs (feature of token t, embedding of token t+1) and speaks of token t+2: EAGLE-1,
EAGLE-2 (the same weights), EAGLE-3 and MTP. What tells them apart is which tensors are there and a few facts of their
`HeadSpec`. A `MedusaHead` reads the last feature alone and speaks of several tokens ahead.

Knows tensors by canonical name; how publishers spell them is the business of `checkpoints.py`, and which guess to
follow that of the drafters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.dense import Product, attended, mask_of, turned
from specchat.engine.model import FINAL, Model
from specchat.engine.passes import Pass
from specchat.errors import ModelError
from specchat.models.headspec import MEDUSA, HeadSpec, TargetFacts, fits
from specchat.models.rope import turns
from specchat.models.weights import Loader


@dataclass(frozen=True)
class HeadOutput:
    """What a head says at every row."""

    logits: Tensor  # [N, Vd]
    hidden: Tensor  # [N, D], to be fed back in place of the feature that nobody knows yet


@dataclass(frozen=True)
class Layer:
    """Weights of one layer of a head."""

    before_attention: Tensor | None  # norm [D]; the first layer of EAGLE has none
    qkv: Product
    query_norm: Tensor | None  # [head_size]
    key_norm: Tensor | None
    attention_out: Product
    before_mlp: Tensor  # norm [D]
    gate_up: Product
    down: Product
    window: int | None  # positions that it looks back; None: all


class FeatureHead:
    """A block that turns pairs into features and logits, over a cache of its own.

    Its embeddings are not always the target's: take them from `embed`.
    """

    def __init__(self, spec: HeadSpec, loader: Loader, target: Model) -> None:
        self.kind, self.window, self.wiring, self.sizes = spec.kind, spec.window, spec.wiring, spec.block
        self.taps = spec.taps_for(len(target.pool.layout.shapes))
        self.device, self.dtype = loader.device, target.pool.layout.dtype
        self._adds_one = 1.0 if self.wiring.norms_add_one else 0.0
        self._loader = loader
        self._tap_norms = [self._weight(f"fc_norm.{index}") for index in range(len(self.taps))]
        self._all_taps_norm = self._weight("input_norm")
        self._fc = loader.product("fc") if "fc.weight" in spec.tensors else None
        self._of_embedding, self._of_feature = self._weight("embedding_norm"), self._weight("feature_norm")
        self._join = loader.product("join") if "join.weight" in spec.tensors else None
        self._layers = [self._layer(index) for index in range(spec.block.layers)]
        self._norm = self._weight("norm")
        self._table = loader.optional("embed_tokens.weight")
        own = loader.product("lm_head") if "lm_head.weight" in spec.tensors else None
        self._score = own or target.score
        self._embed = target.embed
        self.ids = spec.ids().to(loader.device) if "d2t" in spec.tensors else None
        self._speeds, self._size = spec.rope.speeds(spec.block.head_size).to(loader.device), spec.rope.size
        rows = ((spec.block.kv_heads, spec.block.head_size, spec.block.head_size),) * spec.block.layers
        self.pool = KVPool(KVLayout(rows, self.dtype, loader.device))
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
        parts = [self._normed(part, weight) for part, weight in zip(parts, self._tap_norms, strict=True)]
        return self._fc(self._normed(torch.cat(parts, dim=-1), self._all_taps_norm))

    @torch.inference_mode()
    def run(self, hidden: Tensor, embedded: Tensor, nodes: Pass, cache: KVCache) -> HeadOutput:
        """Read pairs: features [N, D], true and fused or its own output, with embeddings [N, D] of the tokens after.

        Keys and values of the N rows go behind `cache.length` and stay uncommitted, as those of a target's pass.
        """
        stream, rows = self._joined(hidden, embedded)
        cosine, sine = (
            side[:, None].to(stream) for side in turns(nodes.positions.to(self.device), self._speeds, self._size)
        )
        shared = self.sizes.heads // self.sizes.kv_heads
        masks = {window: mask_of(nodes, window, shared, stream) for window in {layer.window for layer in self._layers}}
        for index, layer in enumerate(self._layers):
            rows = rows if index == 0 else self._normed(stream, layer.before_attention)
            read = self._projected(layer, rows, (cosine, sine))
            stored = cache.write(index, *(side.transpose(0, 1)[None] for side in (read.keys, read.values)), nodes.width)
            stream = stream + layer.attention_out(self._mixed(read, stored, masks[layer.window]))
            gate, up = layer.gate_up(self._normed(stream, layer.before_mlp)).chunk(2, dim=-1)
            stream = stream + layer.down(functional.silu(gate) * up)
        normed = self._normed(stream, self._norm)
        return HeadOutput(self._score(normed), normed if self.wiring.feeds_normed else stream)

    def _joined(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream [N, D], and what the first attention reads: [N, D], or the pair itself [N, 2D]."""
        embedding, feature = self._normed(embedded, self._of_embedding), self._normed(hidden, self._of_feature)
        pair = torch.cat((feature, embedding) if self.wiring.feature_first else (embedding, feature), dim=-1)
        if self._join is None:
            return feature if self.wiring.residual_is_normed else hidden, pair
        stream = self._join(pair)
        return stream, self._normed(stream, self._layers[0].before_attention)

    def _projected(self, layer: Layer, rows: Tensor, rope: tuple[Tensor, Tensor]) -> _Read:
        sizes, count = self.sizes, len(rows)
        size, wide = sizes.head_size, 2 if sizes.gated else 1
        parts = layer.qkv(rows).split((sizes.heads * size * wide, *(sizes.kv_heads * size,) * 2), dim=-1)
        queries, keys, values = (part.view(count, -1, size) for part in parts)
        gate = None
        if sizes.gated:
            queries, gate = parts[0].view(count, sizes.heads, 2 * size).chunk(2, dim=-1)
        queries, keys = self._normed(queries, layer.query_norm), self._normed(keys, layer.key_norm)
        return _Read(turned(queries, *rope), turned(keys, *rope), values, gate)

    def _mixed(self, read: _Read, stored: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """Attention of every row over what is stored. [N, H * size]"""
        mixed = attended(read.queries, *stored, mask)
        return mixed if read.gate is None else mixed * read.gate.reshape(len(mixed), -1).sigmoid()

    def _normed(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        return rows if weight is None else functional.rms_norm(rows, weight.shape, weight, self.sizes.epsilon)

    def _weight(self, name: str) -> Tensor | None:
        """The weight of a norm; some families store it less one."""
        weight = self._loader.optional(f"{name}.weight")
        return weight if weight is None else weight + self._adds_one

    def _layer(self, index: int) -> Layer:
        at, loader = f"layers.{index}", self._loader
        before_mlp = self._weight(f"{at}.post_attention_layernorm")
        assert before_mlp is not None, "a layer without a norm before its MLP passed inspection"
        return Layer(
            before_attention=self._weight(f"{at}.input_layernorm"),
            qkv=loader.product(*(f"{at}.self_attn.{part}_proj" for part in "qkv")),
            query_norm=self._weight(f"{at}.self_attn.q_norm"),
            key_norm=self._weight(f"{at}.self_attn.k_norm"),
            attention_out=loader.product(f"{at}.self_attn.o_proj"),
            before_mlp=before_mlp,
            gate_up=loader.product(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"),
            down=loader.product(f"{at}.mlp.down_proj"),
            window=self.sizes.windows[index] if self.sizes.windows else None,
        )


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


def load_head(
    spec: HeadSpec, target: Model, dtype: torch.dtype | None, device: torch.device
) -> FeatureHead | MedusaHead:
    """The network of a head, beside the target that it was trained for; ModelError says why the two are no pair.

    It runs in the dtype of the target (`dtype` None), whose states, embeddings and output it shares.
    """
    width = target.embed(torch.zeros(1, dtype=torch.long, device=device)).shape[-1]
    facts = TargetFacts(width, len(target.pool.layout.shapes) or None, target.vocabulary)
    if reasons := fits(spec, facts):
        raise ModelError(f"{spec.source}: this {spec.format} head does not fit the target: {'; '.join(reasons)}")
    loader = Loader(spec.tensors, dtype or target.pool.layout.dtype, device, careful=True)
    return MedusaHead(spec, loader, target) if spec.kind == MEDUSA else FeatureHead(spec, loader, target)


@dataclass(frozen=True)
class _Read:
    """Queries, keys and values of the rows of a pass, turned, and the gate of their mix. [N, heads, head_size]"""

    queries: Tensor
    keys: Tensor
    values: Tensor
    gate: Tensor | None
