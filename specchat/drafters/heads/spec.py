"""A published head as a value: its kind, its dimensions, its wiring and its tensors, with canonical names.

Knows no publisher's tensor names and computes nothing. The names:

    fc.*                    target states side by side -> D       join.*        pair -> D (EAGLE-1, MTP)
    fc_norm.{i}, input_norm norms of these, one by one or all     layers.{i}.*  as in Llama; 0 may lack its first norm
    embedding_norm          norm of the embedding in a pair       norm          before the LM head
    feature_norm            norm of the state in a pair, or       lm_head       else the target's
                            of the output of fc (DFlash)
    embed_tokens            else the target's                     d2t, t2d      draft vocabulary: offsets, membership
    layers.{i}.self_attn    q, k, v and o
    layers.{i}.mlp.gate     router, with experts.{e}.*, or stacks of them, and in most families shared_expert(s).*
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from specchat.drafters.heads.draft_head import DraftHead
from specchat.engine.model import FINAL_NORM, Model
from specchat.errors import ModelError
from specchat.forward.llama.moe import Routing
from specchat.forward.llama.rope import Rope
from specchat.weights.tensor_files import TensorFiles, WeightLoader

EAGLE3, MTP = "eagle3", "mtp"
DEFAULT_TRAINED_LENGTH = 2048  # positions, when the config has no length


@dataclass(frozen=True)
class HeadDimensions:
    """The sizes of a head's layers, from the shapes of its tensors."""

    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    layers: int
    epsilon: float
    has_output_gate: bool = False  # q_proj also projects a gate for the attention output
    sliding_windows: tuple[int | None, ...] = ()  # number of positions that each layer sees; empty: all

    @property
    def rope_size(self) -> int:
        return self.head_size

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """What a layer caches of a token: key heads, size of a key, size of a value."""
        return self.kv_heads, self.head_size, self.head_size


@dataclass(frozen=True)
class Wiring:
    """Differences between heads of the same shape. A wrong value lowers acceptance without an error."""

    is_feature_first: bool = False  # the hidden state precedes the embedding in a pair
    residual_is_normed: bool = False  # the residual stream starts from the normalized hidden state
    feeds_back_normed: bool = False  # the next draft step gets the output of the final norm
    norms_add_one: bool = False  # norms are stored as weight - 1


@dataclass(frozen=True)
class TargetDimensions:
    hidden_size: int
    layers: int | None  # None: unknown, and not compared
    vocab_size: int


@dataclass(frozen=True)
class HeadSpec:
    kind: str
    format: str  # of which publisher, for display
    tensors: TensorFiles  # by canonical name, read on request
    evidence: tuple[str, ...] = ()  # how the head was recognised
    warnings: tuple[str, ...] = ()
    unsupported_reason: str | None = None  # why the head cannot be computed
    dimensions: HeadDimensions = HeadDimensions(0, 1, 1, 0, 0, 0.0)
    wiring: Wiring = Wiring()
    rope: Rope = Rope()
    hidden_state_layers: tuple[int, ...] | None = None  # None: EAGLE-3's three defaults, by the depth of the target
    target_hidden_size: int = 0
    target_vocab_size: int = 0
    draft_vocab_size: int = 0
    context_window: int = DEFAULT_TRAINED_LENGTH  # longest text that the head was trained for, in positions
    tokens_ahead: int = 1  # tokens that one pass predicts
    routing: Routing | None = None  # of layers with a mixture of experts
    uses_target_tables: bool = True  # the target's embeddings and LM head, unless it has its own
    target_layers: int | None = None  # depth of the target that the head was trained for
    network: Callable[[HeadSpec, WeightLoader, Model], DraftHead] | None = None  # None: it cannot be computed
    variants: tuple[HeadSpec, ...] = field(default=(), repr=False)  # other interpretations; a self-test selects one

    @property
    def source(self) -> Path:
        return self.tensors.source

    def hidden_state_layers_for(self, layers: int) -> tuple[int, ...]:
        """The layers whose hidden states the head reads, for a target of this depth."""
        return self.hidden_state_layers if self.hidden_state_layers is not None else (2, layers // 2, layers - 3)

    def draft_to_target_ids(self) -> Tensor:
        """The target's token of every column of the draft vocabulary [Vd]; ModelError for an invalid table.

        `d2t` has offsets: column 5 with offset 3 is token 8. Some exports have ids instead; `t2d`, the membership of
        all tokens, tells the two apart.
        """
        table = self.tensors.read_tensor("d2t").long()
        variants = [table + torch.arange(len(table))]
        if "t2d" in self.tensors:
            inside = self.tensors.read_tensor("t2d").bool().nonzero().flatten()
            if len(inside) != len(table):
                raise ModelError(f"{self.source}: t2d contains {len(inside)} tokens, but d2t has {len(table)} entries")
            variants = [ids for ids in (*variants, table) if torch.equal(ids, inside)]
            if not variants:
                raise ModelError(f"{self.source}: d2t and t2d disagree on the tokens of the draft vocabulary")
        if "lm_head.weight" in self.tensors and (rows := self.tensors.shape("lm_head.weight")[0]) != len(table):
            raise ModelError(f"{self.source}: lm_head has {rows} rows, but d2t has {len(table)} entries")
        ids, vocab_size = variants[0], self.target_vocab_size
        if bool((ids < 0).any()) or (vocab_size and bool((ids >= vocab_size).any())):
            worst = int(ids.min()) if bool((ids < 0).any()) else int(ids.max())
            raise ModelError(f"{self.source}: d2t contains token {worst}, outside the vocabulary of {vocab_size}")
        if bool((ids.diff() <= 0).any()):
            raise ModelError(f"{self.source}: the tokens of d2t are not in ascending order")
        return ids

    def with_variants(self, *others: HeadSpec) -> HeadSpec:
        """The same head, with other interpretations of its config that only a self-test can rule out."""
        return replace(self, variants=tuple(other for other in others if other != self))


def mismatches(spec: HeadSpec, target: TargetDimensions) -> list[str]:
    """Why this head does not fit this target; empty when it fits."""
    reasons: list[str] = []
    if spec.unsupported_reason:
        reasons.append(f"not supported yet: {spec.unsupported_reason}")
    if spec.target_hidden_size and spec.target_hidden_size != target.hidden_size:
        sizes = f"{spec.target_hidden_size}, but the target has {target.hidden_size}"
        reasons.append(f"it needs hidden states of size {sizes}")
    parts = (("embeddings", "embed_tokens"), ("LM head", "lm_head"))
    shared = [name for name, own in parts if _uses_targets(spec, own)]
    if shared and spec.dimensions.hidden_size not in (0, target.hidden_size):
        sizes = f"has hidden size {spec.dimensions.hidden_size} and the target {target.hidden_size}"
        reasons.append(f"it uses the target's {' and '.join(shared)}, but {sizes}")
    if spec.target_vocab_size and spec.target_vocab_size != target.vocab_size:
        sizes = f"{spec.target_vocab_size} tokens, but the target's has {target.vocab_size}"
        reasons.append(f"its target vocabulary has {sizes}")
    if target.layers is not None:
        reasons += _depth_mismatches(spec, target.layers)
    return reasons


def _depth_mismatches(spec: HeadSpec, layers: int) -> list[str]:
    if spec.target_layers not in (None, layers):
        return [f"it was trained for a target with {spec.target_layers} layers, but this one has {layers}"]
    needed = spec.hidden_state_layers_for(layers)
    if all(FINAL_NORM <= layer <= layers for layer in needed):
        return []
    return [f"it needs hidden states after the layers {', '.join(map(str, needed))}, but the target has {layers}"]


def _uses_targets(spec: HeadSpec, name: str) -> bool:
    return spec.uses_target_tables and f"{name}.weight" not in spec.tensors
