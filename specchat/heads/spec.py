"""One published head as a value: what it reads, how it is wired, and where its tensors are, whoever published it.

Knows nothing of spellings (`formats/` does) and computes nothing (`heads.py` does). Tensors have canonical names:

    fc.*                    taps side by side -> D (EAGLE-3)      join.*        pair -> D (EAGLE-1, MTP)
    fc_norm.{i}, input_norm norms of the taps, one by one or all  layers.{i}.*  as in a Llama; 0 may lack its first norm
    embedding_norm          norm of the embedding of a pair       norm          before the output matrix
    feature_norm            norm of the feature of a pair, or     lm_head       else the target's
                            of what fc gives (DFlash)
    embed_tokens            else the target's                     d2t, t2d      draft vocabulary: offsets, membership
    blocks.{k}.{l}.*        residual blocks of Medusa             heads.{k}     its output matrices, else the target's
    layers.{i}.self_attn    q, k, v and o; or the q_a, q_b, kv_a and kv_b of attention over latents
    layers.{i}.mlp.gate     router, beside experts.{e}.*, or stacks of them, and mostly shared_expert(s).*
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from specchat.engine.model import FINAL_NORM
from specchat.errors import ModelError
from specchat.forward.rope import Rope
from specchat.models.tensor_files import TensorFiles

EAGLE, EAGLE3, MTP, MEDUSA, DFLASH = "eagle", "eagle3", "mtp", "medusa", "dflash"
EARLY_EXIT = "early exit"
SIGMOID, SOFTMAX = "sigmoid", "softmax"
DEFAULT_TRAINED_LENGTH = 2048  # pairs that heads are trained on where nothing is said


@dataclass(frozen=True)
class MlaDimensions:
    """The numbers of attention over latents: what is kept of a token, and what heads make of it."""

    heads: int
    kv_lora_rank: int  # of a latent
    qk_nope_head_dim: int  # numbers of a query that are not turned
    qk_rope_head_dim: int  # and that are
    v_head_dim: int
    q_lora_rank: int | None  # of the vector that queries are made of; None: of the stream itself
    is_rope_interleaved: bool = True  # neighbours turn together, not the first half with the second


@dataclass(frozen=True)
class HeadDimensions:
    """The numbers of a head's layers, as the shapes of its tensors have them."""

    hidden_size: int  # D of the head
    heads: int
    kv_heads: int
    head_size: int
    layers: int
    epsilon: float
    has_output_gate: bool = False  # every query brings a gate for what it finds
    sliding_windows: tuple[int | None, ...] = ()  # positions that each layer looks back; empty: all
    mla: MlaDimensions | None = None  # where keys and values are made of latents

    @property
    def rope_size(self) -> int:
        """Numbers of a head that its rope is made for."""
        return self.mla.qk_rope_head_dim if self.mla else self.head_size


@dataclass(frozen=True)
class Wiring:
    """Where heads of one shape differ; each was a silent loss of acceptance for somebody."""

    is_feature_first: bool = False  # the feature stands before the embedding in a pair
    residual_is_normed: bool = False  # the residual stream starts from the normed feature, not from the feature
    feeds_back_normed: bool = False  # what is fed back has passed the last norm
    norms_add_one: bool = False  # norms are stored less one


@dataclass(frozen=True)
class Routing:
    """Which experts of a mixture a row asks, and with what weight."""

    scoring_func: str  # SIGMOID of each by itself, or SOFTMAX over all
    experts_per_token: int  # experts that every row asks
    expert_groups: int = 1  # into which the experts fall, equally many each
    topk_groups: int = 1  # whose experts can be chosen
    is_topk_normalized: bool = True  # the weights of the chosen add up to one
    routed_scaling_factor: float = 1.0  # of those weights


@dataclass(frozen=True)
class BlockConfig:
    """The block that a head fills in one pass: the last sure token, and masks behind it."""

    block_size: int  # with the sure token
    mask_token_id: int  # the token that stands for what is not known
    samples_from_anchor: bool = False  # each slot guesses the token after its place, so the sure one does too
    windows_start_at_anchor: bool = (
        False  # in a layer with a window, all slots look as far back as the first, and one more
    )
    has_non_causal_windows: bool = False  # in such a layer too, slots see those behind them


@dataclass(frozen=True)
class TargetDimensions:
    """What a head must know of a target to be its partner."""

    hidden_size: int
    layers: int | None  # None: nobody can say, and nobody is refused for it
    vocab_size: int


@dataclass(frozen=True)
class HeadSpec:
    """One published head."""

    kind: str
    format: str  # whose, in words
    tensors: TensorFiles  # by canonical name, read when asked for
    evidence: tuple[str, ...] = ()  # what it was recognised by
    warnings: tuple[str, ...] = ()
    unsupported_reason: str | None = None  # why it cannot be computed yet
    dimensions: HeadDimensions = HeadDimensions(0, 1, 1, 0, 0, 0.0)
    wiring: Wiring = Wiring()
    rope: Rope = Rope()
    hidden_state_layers: tuple[int, ...] | None = None  # None: EAGLE-3's own three, which depend on the target's depth
    target_hidden_size: int = 0  # width of the target's hidden states that it was trained on
    target_vocab_size: int = 0  # of the target
    draft_vocab_size: int = 0  # tokens that it can draft
    context_window: int = DEFAULT_TRAINED_LENGTH  # longest text that it was trained for, in pairs
    tokens_ahead: int = 1  # tokens ahead that it speaks of at once
    routing: Routing | None = None  # where its layers are mixtures of experts
    block_config: BlockConfig | None = None  # where it fills a block
    target_layers: int | None = None  # depth of the target that it says it was trained for
    variants: tuple[HeadSpec, ...] = field(default=(), repr=False)  # others, that only a self-test can tell apart

    @property
    def source(self) -> Path:
        """The folder or file that it was read from."""
        return self.tensors.source

    def hidden_state_layers_for(self, layers: int) -> tuple[int, ...]:
        """The hidden states it reads of a target of so many layers."""
        return self.hidden_state_layers if self.hidden_state_layers is not None else (2, layers // 2, layers - 3)

    def draft_to_target_ids(self) -> Tensor:
        """The target's token of every column of the draft vocabulary [Vd]; ModelError for a table that cannot be one.

        `d2t` holds offsets: column 5 with offset 3 is token 8. Some exports hold the ids themselves; where `t2d` says
        which tokens are in, it tells the two apart.
        """
        table = self.tensors.read_tensor("d2t").long()
        readings = [table + torch.arange(len(table))]
        if "t2d" in self.tensors:
            inside = self.tensors.read_tensor("t2d").bool().nonzero().flatten()
            if len(inside) != len(table):
                raise ModelError(f"{self.source}: t2d admits {len(inside)} tokens, but d2t has {len(table)} entries")
            readings = [ids for ids in (*readings, table) if torch.equal(ids, inside)]
            if not readings:
                raise ModelError(f"{self.source}: d2t and t2d disagree on which tokens can be drafted")
        (ids,) = readings[:1]
        if bool((ids < 0).any()) or (self.target_vocab_size and bool((ids >= self.target_vocab_size).any())):
            worst = int(ids.min()) if bool((ids < 0).any()) else int(ids.max())
            raise ModelError(
                f"{self.source}: d2t leads to token {worst}, outside the vocabulary of {self.target_vocab_size}"
            )
        if bool((ids.diff() <= 0).any()):
            raise ModelError(f"{self.source}: d2t does not ascend, so it is no table of offsets")
        return ids

    def with_variants(self, *others: HeadSpec) -> HeadSpec:
        """The same head with other readings of its config that only a self-test can rule out."""
        return replace(self, readings=tuple(other for other in others if other != self))


def mismatches(spec: HeadSpec, target: TargetDimensions) -> list[str]:
    """Why this head is no partner of this target; empty when it is one."""
    reasons: list[str] = []
    if spec.unsupported_reason:
        reasons.append(f"not supported yet: {spec.unsupported_reason}")
    if spec.target_hidden_size and spec.target_hidden_size != target.hidden_size:
        reasons.append(
            f"it reads hidden states of width {spec.target_hidden_size}, and the target's are {target.hidden_size} wide"
        )
    needs_width = [
        name
        for name, own in (("embeddings", "embed_tokens"), ("output matrix", "lm_head"))
        if _borrows_from_target(spec, own)
    ]
    if needs_width and spec.dimensions.hidden_size not in (0, target.hidden_size):
        what = " and ".join(needs_width)
        reasons.append(
            f"it borrows the target's {what}, but is {spec.dimensions.hidden_size} wide and the target {target.hidden_size}"
        )
    if spec.target_vocab_size and spec.target_vocab_size != target.vocab_size:
        reasons.append(f"it speaks of {spec.target_vocab_size} tokens, and the target of {target.vocab_size}")
    if target.layers is not None:
        reasons += _depth_mismatches(spec, target.layers)
    return reasons


def _depth_mismatches(spec: HeadSpec, layers: int) -> list[str]:
    if spec.target_layers not in (None, layers):
        return [f"it was trained for a target of {spec.target_layers} layers, and this one has {layers}"]
    taps = spec.hidden_state_layers_for(layers)
    if all(FINAL_NORM <= tap <= layers for tap in taps):
        return []
    return [f"it reads the target after layers {', '.join(map(str, taps))}, and the target has {layers}"]


def _borrows_from_target(spec: HeadSpec, name: str) -> bool:
    return spec.kind not in (MEDUSA, EARLY_EXIT) and f"{name}.weight" not in spec.tensors
