"""The assistants of Gemma 4 (`gemma4_assistant` of transformers): format, head and drafter.

An assistant is a few layers that attend to the keys and values of the target, and have no KV cache. Input is the
embedding of a token beside a hidden state: the target's of the token before it, then the head's own. Each layer reads
the keys and values of the target's last layer of its kind, full or sliding. All draft tokens have the position of the
last token of the text, and see no other draft token. The candidates of a position differ from path to path, so the
draft is a tree, and the paths of a depth are one batch.

`pre_projection` joins the target's embedding of a token and a hidden state, `model.layers.{i}` are layers of Gemma 4
without keys and values, and `post_projection` makes the hidden state for the next token. With `masked_embedding.*` only
the tokens of the best centroids are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from specchat.drafters.heads.draft_head import TESTED_DEPTH, DraftHead, TargetSample
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, require_tensors
from specchat.drafters.heads.spec import HeadDimensions, HeadSpec
from specchat.engine.cache import NO_KV_ROWS, KVCache, KVLocation
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.device import copy_to_device
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.model import FINAL_NORM, Model
from specchat.errors import ModelError
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import ForwardBatch, ForwardDepth
from specchat.forward.fused_ops import AttentionDimensions, TorchOps, select_fused_ops
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.decoder_layer import (
    Attention,
    AttentionKind,
    DecoderLayer,
    DecoderStack,
    GatedMlp,
    RopeAngles,
)
from specchat.forward.llama.rope import Rope
from specchat.forward.llama.variations import GELU_TANH, Scaling
from specchat.weights.llama_families import LAYER_SCALAR, network_config, rope_config, sliding_window
from specchat.weights.tensor_files import TensorFiles, WeightLoader
from specchat_heads.candidate_tree import CandidateTree, DraftPath, PathLogits

if TYPE_CHECKING:
    from specchat.drafters.registry import DraftingResources

ASSISTANT = "assistant"
SCALING = Scaling(attention=1.0)
TOKENS_AHEAD = 5
NAMES = {
    "pre_projection.": "join.",
    "post_projection.": "feedback.",
    "lm_head.": "lm_head.",
    "model.embed_tokens.": "lm_head.",  # tied
    "model.layers.": "layers.",
    "model.norm.": "norm.",
    "masked_embedding.": "",
}
TEXT_TYPES = ("gemma4_text", "gemma4_unified_text")
PROJECTIONS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = (
    "self_attn.q_norm", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)  # fmt: skip
DEFAULT_CENTROIDS = 32  # scored for a token, of a config that leaves it out


@dataclass(frozen=True)
class AssistantConfig:
    """What the tensors of an assistant do not say."""

    ropes: tuple[Rope, ...]  # of each layer
    centroids: int = 0  # whose tokens are scored; 0: all tokens


@dataclass(frozen=True)
class AssistantOutput:
    logits: Tensor  # [n, V]
    hidden_states: Tensor  # [n, D of the target]: input of the next draft step


class AssistantHead(DraftHead):
    hidden_state_layers = (FINAL_NORM,)

    def __init__(self, spec: HeadSpec, loader: WeightLoader, target: Model, config: AssistantConfig) -> None:
        if (windows := target.attention_windows) is None:
            raise ModelError(
                f"{spec.source}: it reads keys and values of a target in our own passes, which this is not"
            )
        self.target = target
        self._join, self._feedback = loader.linear("join"), loader.linear("feedback")
        norm = loader.tensor("norm.weight")
        layers, kinds, self._queries_per_kv = list[DecoderLayer](), list[AttentionKind](), dict[int | None, int]()
        for index, window in enumerate(spec.dimensions.sliding_windows):
            kv_layer = _kv_layer(spec, target, windows, index)
            layers.append(_layer(loader, f"layers.{index}", kv_layer, window, index))
            kinds.append(_attention_kind(spec, target, config.ropes[index], kv_layer, norm))
            self._queries_per_kv[window] = spec.dimensions.heads // target.pool.layout.shapes[kv_layer][0]
        self._stack, self._like = DecoderStack(layers, norm, kinds[0].ops, kinds), norm
        count = config.centroids
        self._lm_head = CentroidLmHead.load(loader, count) if count else loader.linear("lm_head")
        self.bytes = loader.loaded_bytes

    @torch.inference_mode()
    def forward(self, hidden_states: Tensor, tokens: Tensor, cache: KVCache) -> AssistantOutput:
        """A draft step behind the text in the target's cache, for paths that end in `tokens`. [n, D of the target], [n]

        `hidden_states` are the target's final ones of the token before, or the output for the path without its end.
        """
        pairs = torch.cat((self.target.embed(tokens), hidden_states), dim=-1)
        depth = ForwardDepth(len(self._stack.layers))
        final = self._stack.forward(self._join(pairs), self._batch(len(tokens), cache), depth).final
        return AssistantOutput(self._lm_head(final), self._feedback(final))

    @torch.inference_mode()
    def predictions(self, sample: TargetSample) -> list[Tensor]:
        """A chain after every position, over the target's keys of the text up to there."""
        target, count, cache = self.target, len(sample.probabilities), self.target.pool.open()
        tokens = [sample.tokens_after(depth) for depth in range(TESTED_DEPTH)]
        best = tokens[0].new_empty(TESTED_DEPTH, count)
        with target.pool.acquire_slot(cache, count + SCRATCH_ROWS):
            for start in range(0, count, target.prefill_chunk):
                target.prefill(sample.tokens[start : min(start + target.prefill_chunk, count)], cache)
            for position in reversed(range(count)):
                cache.rollback(position + 1)
                state = sample.hidden_states[position : position + 1]
                for depth in range(TESTED_DEPTH):
                    output = self.forward(state, tokens[depth][position : position + 1], cache)
                    best[depth, position], state = output.logits.argmax(), output.hidden_states
        target.pool.close(cache)
        return list(best)

    def _batch(self, count: int, cache: KVCache) -> ForwardBatch:
        """Rows that see the committed rows of the cache, and write none."""
        length, device = cache.length, self.target.pool.layout.device
        positions = torch.full((count,), length, device=device)
        masks = {window: self._mask(count, length, window) for window in self._queries_per_kv}
        layers = cache.require_slot().layers

        def kv_location(layer: int) -> KVLocation:
            keys, values = layers[layer]
            return KVLocation(keys, values, 0, length)

        # a kernel takes its rows for the last ones of the cache, so there must be as many
        location = kv_location if count <= length else None
        return ForwardBatch(positions, masks, cache.write, location, read_kv=partial(cache.read, kv_length=length))

    def _mask(self, count: int, length: int, window: int | None) -> AttentionMask | None:
        """The last `window` + 1 rows, as in transformers; None where all are seen."""
        if window is None or length <= window + 1:
            return None
        allowed = torch.arange(length) >= length - window - 1
        return AttentionMask(allowed.repeat(count, 1), self._queries_per_kv[window], self._like)


def _kv_layer(spec: HeadSpec, target: Model, windows: Sequence[int | None], index: int) -> int:
    """The last layer of the target of the kind of this layer, full or sliding, that has keys of its own."""
    is_sliding = spec.dimensions.sliding_windows[index] is not None
    size = spec.tensors.shape(f"layers.{index}.self_attn.q_norm.weight")[0]
    shapes = target.pool.layout.shapes
    same = [each for each in range(len(shapes)) if (windows[each] is not None) == is_sliding]
    kv_heads, found, _size = shapes[same[-1]] if same else NO_KV_ROWS
    if found != size or spec.dimensions.heads % kv_heads:
        kind = "sliding" if is_sliding else "full"
        raise ModelError(f"{spec.source}: it reads keys of {size} numbers in {kind} attention, which the target lacks")
    if same[-1] < target.pool.layout.placed_layers:
        raise ModelError(
            f"{spec.source}: it reads keys of layer {same[-1]}, which is not on the target's device; use --place none"
        )
    return same[-1]


def _attention_kind(spec: HeadSpec, target: Model, rope: Rope, kv_layer: int, like: Tensor) -> AttentionKind:
    sizes, (kv_heads, size, _size) = spec.dimensions, target.pool.layout.shapes[kv_layer]
    dimensions = AttentionDimensions(sizes.heads, kv_heads, size, sizes.epsilon, SCALING, normalizes_values=True)
    # native kernels read the cache as numbers of the passes
    ops = select_fused_ops(dimensions, like) if like.dtype == target.pool.layout.dtype else TorchOps(dimensions)
    return AttentionKind(ops, lambda positions: RopeAngles.of(rope, positions, size, like))


def _layer(loader: WeightLoader, prefix: str, kv_layer: int, window: int | None, index: int) -> DecoderLayer:
    def norm(name: str) -> Tensor:
        return loader.tensor(f"{prefix}.{name}.weight")

    query, output = (loader.linear(f"{prefix}.self_attn.{part}_proj") for part in "qo")
    scalar = loader.optional(f"{prefix}.{LAYER_SCALAR}")
    return DecoderLayer(
        input_layernorm=norm("input_layernorm"),
        self_attn=Attention(query, norm("self_attn.q_norm"), None, output, kv_source=kv_layer),
        post_attention_layernorm=norm("pre_feedforward_layernorm"),
        mlp=GatedMlp.load(loader.linear, f"{prefix}.mlp", GELU_TANH),
        sliding_window=window,
        attention_output_norm=norm("post_attention_layernorm"),
        mlp_output_norm=norm("post_feedforward_layernorm"),
        attention_kind=index,
        output_scale=1.0 if scalar is None else scalar.item(),
    )


@dataclass(frozen=True)
class CentroidLmHead:
    """Logits of the tokens of the best centroids; the others have -inf. [n, D] -> [n, V]"""

    centroids: Linear  # D -> C
    tokens: Tensor  # of each centroid [C, V / C]
    weight: Tensor  # [V, D]
    count: int  # centroids

    @classmethod
    def load(cls, loader: WeightLoader, count: int) -> CentroidLmHead:
        weight, order = loader.tensor("lm_head.weight"), loader.tensor("token_ordering").long()
        centroids, vocab_size = loader.files.shape("centroids.weight")[0], len(weight)
        is_order = order.shape == (vocab_size,) and torch.equal(order.sort().values, torch.arange(vocab_size).to(order))
        if vocab_size % centroids or not is_order:
            raise ModelError(f"{loader.files.source}: token_ordering does not list every token of its vocabulary once")
        return cls(loader.linear("centroids"), order.view(centroids, -1), weight, min(count, centroids))

    def __call__(self, rows: Tensor) -> Tensor:
        tokens = self.tokens[self.centroids(rows).topk(self.count, dim=-1).indices].flatten(1)  # [n, tokens]
        scores = (self.weight[tokens] @ rows[:, :, None])[:, :, 0]
        return rows.new_full((len(rows), len(self.weight)), float("-inf")).scatter_(1, tokens, scores)


class Assistant(CandidateTree):
    """It needs the target's cache of the whole text except the last token, and the last hidden state of it."""

    name = ASSISTANT
    depends_on_path = True
    drafts_with_models = True

    def __init__(self, head: AssistantHead) -> None:
        super().__init__(TOKENS_AHEAD)
        self.head, self.hidden_state_layers = head, head.hidden_state_layers
        self.hidden_states = HiddenStateBuffer(max_tokens=1)

    def path_logits(self, context: DraftContext) -> PathLogits | None:
        cache, stored_tokens = context.cache, len(context.tokens) - 1
        if cache is None or cache.slot is None or cache.length != stored_tokens:
            return None
        if self.hidden_states.end != stored_tokens or self.hidden_states.start == stored_tokens:
            return None
        # the states that the tokens behind a path are read with; those of the root are the target's
        states: dict[DraftPath | None, Tensor] = {None: self.hidden_states.slice_from(stored_tokens - 1)}

        def logits(_ahead: int, paths: Sequence[DraftPath]) -> Tensor:
            parents = torch.cat([states[path[:-1] if path else None] for path in paths])
            ends = [path[-1] if path else context.tokens[-1] for path in paths]
            output = self.head.forward(parents, copy_to_device(ends, parents.device), cache)
            states.update(zip(paths, output.hidden_states.split(1), strict=True))
            return output.logits

        return logits

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        self.hidden_states.observe(outcome, self.head.target.hidden_state_layers, self.hidden_state_layers)

    def memory_bytes(self) -> int:
        return self.hidden_states.bytes

    def forget(self, length: int) -> None:
        super().forget(length)
        self.hidden_states.truncate(length)


def detect_assistant(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A small decoder between two projections, or the name of one in the config."""
    kind = str(checkpoint.config.get("model_type") or "")
    if "pre_projection.weight" not in checkpoint.tensors and not kind.endswith("_assistant"):
        return None
    text_type = checkpoint.text_config.get("model_type")
    if text_type not in TEXT_TYPES:
        evidence, reason = (f"model_type is {kind}",), f"an assistant with layers of {text_type}"
        return HeadSpec(ASSISTANT, f"{kind} of transformers", checkpoint.tensors, evidence, unsupported_reason=reason)
    config, tensors = network_config(checkpoint.text_config), checkpoint.with_canonical_names(NAMES)
    layers = range(int(config["num_hidden_layers"]))
    _check_tensors(tensors, len(layers))
    vocab_size, hidden_size = tensors.shape("lm_head.weight")
    target_hidden_size = tensors.shape("feedback.weight")[0]
    ropes = tuple(Rope.from_config(rope_config(config, layer) or {}) for layer in layers)
    has_centroids = "centroids.weight" in tensors
    centroids = int(checkpoint.config.get("centroid_intermediate_top_k") or DEFAULT_CENTROIDS) if has_centroids else 0
    evidence = f"{len(layers)} layers without keys between pre_projection and post_projection, {hidden_size} numbers"
    return HeadSpec(
        kind=ASSISTANT,
        network=partial(AssistantHead, config=AssistantConfig(ropes, centroids)),
        uses_target_tables=False,
        format="Gemma 4 assistant",
        tensors=tensors,
        evidence=(evidence, *((f"it scores the tokens of {centroids} centroids",) if centroids else ())),
        dimensions=HeadDimensions(
            hidden_size,
            heads=int(config["num_attention_heads"]),
            kv_heads=1,  # of its target
            head_size=0,  # another one in layers with full attention
            layers=len(layers),
            epsilon=float(config.get("rms_norm_eps", 1e-6)),
            sliding_windows=tuple(sliding_window(config, layer) for layer in layers),
        ),
        hidden_state_layers=(FINAL_NORM,),
        target_hidden_size=target_hidden_size,
        target_vocab_size=vocab_size,
        draft_vocab_size=vocab_size,
        context_window=int(config["max_position_embeddings"]),
    )


def _check_tensors(tensors: TensorFiles, layers: int) -> None:
    """ModelError when a tensor is missing, or a projection between target and head has another size."""
    parts = [f"layers.{layer}.{part}.weight" for layer in range(layers) for part in (*PROJECTIONS, *NORMS)]
    require_tensors(tensors, ["join.weight", "feedback.weight", "lm_head.weight", "norm.weight", *parts])
    target_size, hidden_size = tensors.shape("feedback.weight")
    for name, expected in (("join.weight", (hidden_size, 2 * target_size)), ("norm.weight", (hidden_size,))):
        if (actual := tensors.shape(name)) != expected:
            raise ModelError(f"{tensors.source}: {name} {list(actual)} should be {list(expected)}")


def build(resources: DraftingResources) -> Drafter | None:
    head = resources.heads.get(ASSISTANT)
    return Assistant(cast("AssistantHead", head)) if head is not None else None
