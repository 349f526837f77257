"""Networks of the Llama architecture without transformers; `Scaling` and the layers say what a family varies.

Fused matmuls, packed weights, and tables of rotary embeddings. It computes what transformers computes. Knows
tensors; knows no file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise

import torch
from torch import Tensor

from specchat.devices import kind_of, launching_on
from specchat.engine.cache import NO_KV_ROWS, KVCache, KVLayout, KVPool, Places
from specchat.engine.device import copy_to_device
from specchat.engine.kv_arena import KVArena
from specchat.engine.model import CaptureProgress, ModelOutput, SampledOutput
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import NO_NOISE, DeviceNoise, LogitRows, NoiseInputs, Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits, ForwardBatch, ForwardDepth, HiddenStates, Nodes, chain_nodes
from specchat.forward.cuda.cuda_graphs import CudaGraphs, GraphedNetwork, GraphSettings, PassOutput
from specchat.forward.fused_ops import AttentionDimensions, TorchOps, select_fused_ops
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import Linear, QuantLinear
from specchat.forward.llama.decoder_layer import AttentionKind, DecoderLayer, PerLayerInput, RopeAngles
from specchat.forward.llama.embedding_rows import EmbeddingRows, EmbeddingTable
from specchat.forward.llama.gated_delta_net import DeltaNetSizes, RecurrentPass
from specchat.forward.llama.moe import ExpertSizes, MixtureOfExperts
from specchat.forward.llama.network_part import NetworkPart
from specchat.forward.llama.variations import LayerShape, Scaling
from specchat.forward.native.native_sampling import can_sample, sample_rows
from specchat.forward.native.native_stack import NativeStack, decoder_stack


@dataclass(frozen=True)
class Dimensions:
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    epsilon: float
    max_position_embeddings: int
    scaling: Scaling = Scaling()
    experts: ExpertSizes | None = None  # of networks whose MLP is a mixture of experts
    has_sinks: bool = False  # a learned score of each head beside the scores of the keys
    delta_net: DeltaNetSizes | None = None  # of the recurrent layers
    recurrent_layers: frozenset[int] = frozenset()
    layer_shapes: tuple[LayerShape, ...] = ()  # where layers differ from the sizes above
    per_layer_input_size: int = 0  # of the vector that each layer reads for a token
    per_layer_vocab_size: int = 0

    def shape(self, layer: int) -> LayerShape:
        if self.layer_shapes:
            return self.layer_shapes[layer]
        return LayerShape(self.kv_heads, self.head_size, self.intermediate_size)

    def attention(self, layer: int) -> AttentionDimensions:
        shape = self.shape(layer)
        return AttentionDimensions(
            self.heads, shape.kv_heads, shape.head_size, self.epsilon, self.scaling, self.has_sinks,
            shape.normalizes_values,
        )  # fmt: skip

    @property
    def kv_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """What each layer writes to the KV cache; those that read the rows of others come last and are left out."""
        shapes = ((layer, self.shape(layer)) for layer in range(self.layers))
        return tuple(
            NO_KV_ROWS if layer in self.recurrent_layers else (shape.kv_heads, shape.head_size, shape.head_size)
            for layer, shape in shapes
            if shape.kv_source is None
        )


@dataclass(frozen=True)
class Weights:
    """All weights. The embedding and the first layers may be elsewhere, while everything else is on a GPU."""

    embedding: EmbeddingTable  # [V, D]
    layers: list[DecoderLayer]
    norm: Tensor  # [D]
    lm_head: Linear  # -> V
    ropes: tuple[RopeAngles, ...]  # of each kind of attention, for every position of the context window
    attentions: tuple[AttentionDimensions, ...]  # of each kind of attention; a layer says which it has
    bytes: int  # in memory
    per_layer_input: PerLayerInput | None = None
    places: Places = ()  # of the first layers
    check_files: Callable[[], None] | None = None  # of weights that stay in files: ModelError where one has changed

    @property
    def are_capturable(self) -> bool:
        """Whether a pass needs no answer of the device: elsewhere the host must know which experts a row chose."""
        on_cpu = sum(count for device, count in self.places if device.type == "cpu")
        mlps = (layer.mlp for layer in self.layers[on_cpu:])
        return all(each.is_on_device for each in mlps if isinstance(each, MixtureOfExperts))


class LlamaModel:
    """A model of the Llama family. With `graphs`, passes over few nodes are CUDA graphs over a KV arena.

    With native kernels it is batch invariant: a node of a draft tree has the bits of plain decoding. Without them,
    exact mode pads every pass to the same shape.
    """

    supports_self_drafting: bool = True  # draft passes of fewer layers leave no trace

    def __init__(
        self,
        dimensions: Dimensions,
        weights: Weights,
        context_window: int,
        limits: BatchLimits,
        graphs: GraphSettings | None = None,
        *,
        has_int8_kv: bool = False,
    ) -> None:
        self.dimensions, self.weights, self.scaling = dimensions, weights, dimensions.scaling
        self.device, self._like = weights.norm.device, weights.norm
        self._embedding_scale = torch.tensor(self.scaling.embeddings).to(self._like.dtype).item()  # as transformers
        is_capturable = graphs is None or kind_of(self.device).has_kernels  # native kernels are not
        likes = [*(torch.empty(0, dtype=self._like.dtype, device=each) for each, _ in weights.places), self._like]
        is_fused = is_capturable and _have_one_dtype(weights)
        ops = [_fused_ops(weights.attentions, each, is_fused=is_fused) for each in likes]
        self.ops = ops[-1][0]  # they differ in attention only
        parts = (*weights.layers, weights.per_layer_input, weights.lm_head)
        has_invariant_linears = isinstance(weights.lm_head, QuantLinear) and all(map(_is_invariant, parts))
        self.is_batch_invariant = all(each.is_batch_invariant for each in chain(*ops)) and has_invariant_linears
        # an expert alone computes as many rows as chose it, whatever the number of rows of the pass
        is_on_cpu = any(each.device.type == "cpu" for each in likes)
        has_equal_passes = dimensions.experts is None or (weights.are_capturable and not is_on_cpu)
        self.is_exact = self.is_batch_invariant or (limits.exact and has_equal_passes)
        self.limits = limits = replace(limits, exact=limits.exact and not self.is_batch_invariant)
        self.prefill_chunk, self.max_rows, self.supports_trees = limits.prefill_chunk, limits.max_rows, not limits.exact
        self.context_window, self.vocab_size, self.bytes = context_window, dimensions.vocab_size, weights.bytes
        self.layer_count, self.lm_head = len(weights.layers), weights.lm_head
        self.attention_windows = tuple(layer.sliding_window for layer in weights.layers)
        self.hidden_state_layers: tuple[int, ...] = ()
        self._full_depth = ForwardDepth(self.layer_count)
        layout = KVLayout(dimensions.kv_shapes, self._like.dtype, self.device, has_int8_kv, weights.places)
        arena = KVArena(layout, graphs.arena_rows) if graphs is not None else None
        bounds = pairwise([*accumulate((count for _, count in weights.places), initial=0), self.layer_count])
        parts = zip(bounds, ops, likes, strict=True)
        *earlier, self._part = (self._network_part(*layers, own_ops, like) for layers, own_ops, like in parts)
        self._stack = self._part.stack
        self._earlier_parts = [each.with_graphs(arena, partial(self._no_rows, each)) for each in earlier]
        self.pool = KVPool(layout, arena=arena)
        self.graphs = None if graphs is None or arena is None else self._cuda_graphs(graphs, arena)
        self.joins_texts = self.is_batch_invariant and isinstance(self._stack, NativeStack) and self.graphs is None

    def _network_part(self, first: int, last: int, ops: Sequence[TorchOps], like: Tensor) -> NetworkPart:
        weights, heads = self.weights, self.dimensions.heads
        kinds = [AttentionKind(each, rope.to(like.device).at) for each, rope in zip(ops, weights.ropes, strict=True)]
        layers, norm = weights.layers[first:last], weights.norm if last == self.layer_count else None
        queries_per_kv = {
            layer.sliding_window: heads // weights.attentions[layer.attention_kind].kv_heads for layer in layers
        }
        stack = decoder_stack(layers, norm, ops[0], kinds, weights.per_layer_input, first)
        return NetworkPart(stack, self.limits, queries_per_kv, like)

    def _cuda_graphs(self, settings: GraphSettings, arena: KVArena) -> CudaGraphs[PassOutput]:
        """The graphs of passes over few nodes; none is captured yet."""

        def compute(rows: Tensor, batch: ForwardBatch, noise: DeviceNoise, depth: ForwardDepth) -> PassOutput:
            states = self._stack.forward(rows, batch, depth)
            logits = self._scaled_logits(states.final)
            return PassOutput(logits, states.selected, noise.sample(logits))

        windows, reads_rows = self._stack.sliding_windows, self.ops.reads_cache_rows
        no_rows, mask = partial(self._no_rows, self._part), self._part.attention_mask
        network = GraphedNetwork(compute, no_rows, windows, mask, reads_rows, self._recurrent_pass)
        return CudaGraphs(settings.capture, arena, network, exact=self.limits.exact)

    def _recurrent_pass(self, _ancestors: Tensor) -> RecurrentPass | None:
        """What a CUDA graph does with recurrent layers, for nodes with these ancestor masks."""
        return None

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        if hidden_state_layers != self.hidden_state_layers:
            for graphs in filter(None, (self.graphs, *(each.graphs for each in self._earlier_parts))):
                graphs.clear()
        self.hidden_state_layers = hidden_state_layers
        self._full_depth = ForwardDepth(self.layer_count, hidden_state_layers)

    def capture_graphs(self, progress: CaptureProgress) -> None:
        for part in self._earlier_parts:
            part.capture_graphs(self._full_depth, progress)
        if self.graphs is not None:
            self.graphs.capture_all(self._full_depth, progress)

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        table = self.weights.embedding
        return self._scaled(table[tokens.to(table.device)])

    def _scaled(self, embeddings: Tensor) -> Tensor:
        rows = embeddings.to(self.device, non_blocking=True)
        return rows if self._embedding_scale == 1.0 else rows * self._embedding_scale

    @property
    def has_graphs(self) -> bool:
        return self.graphs is not None

    @property
    def graph_widths(self) -> tuple[int, ...]:
        return () if self.graphs is None or self.graphs.is_disabled or self.limits.exact else self.graphs.sizes

    @property
    def embedding_table(self) -> Tensor | None:
        """None where they are scaled, on another device, or still in a file."""
        table = self.weights.embedding
        is_as_read = self._embedding_scale == 1.0 and table.device == self.device
        return table if isinstance(table, Tensor) and is_as_read else None

    @torch.inference_mode()
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        logits = self.weights.lm_head(hidden_states)
        if self.weights.check_files is not None:  # after all of a pass, and before anything of it is committed
            self.weights.check_files()
        return logits

    def _scaled_logits(self, hidden_states: Tensor) -> Tensor:
        """Logits as tokens are sampled from them."""
        logits, scaling = self.compute_logits(hidden_states), self.scaling
        if scaling.logits != 1.0:
            logits = logits * scaling.logits
        return logits if scaling.logit_cap is None else self.ops.soft_cap(logits, scaling.logit_cap)

    def forward_early_exit(self, tokens: list[int], cache: KVCache, exit_layer: int) -> Tensor:
        """Compute tokens with the first layers, final norm and output matrix (LayerSkip, arXiv 2404.16710).

        Deeper layers write no rows, and what the first write stays uncommitted. Logits of the last token [1, V]
        """
        return self._forward_chain(tokens, cache, ForwardDepth(exit_layer)).logits

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        count, nodes = len(tree), self.limits.nodes(tree)
        if (output := self._replay(nodes, cache, self._full_depth)) is not None:
            return output.rows(0, count)
        states = self._forward(nodes, cache, self._full_depth)
        selected = states.selected[:count] if states.selected is not None else None
        return ModelOutput(self._scaled_logits(states.final)[:count], selected)

    @torch.inference_mode()
    def forward_texts(self, trees: Sequence[tuple[DraftTree, KVCache]]) -> list[ModelOutput]:
        assert isinstance(self._stack, NativeStack), "`joins_texts` says no"
        counts = [len(tree) for tree, _cache in trees]
        batches = [self._part.batch(self.limits.nodes(tree), cache) for tree, cache in trees]
        rows = self._embed_nodes([token for tree, _cache in trees for token in tree.tokens])
        states = self._stack.program.run(rows, batches, self._full_depth)
        selected = states.selected.split(counts) if states.selected is not None else [None] * len(counts)
        return list(map(ModelOutput, self._scaled_logits(states.final).split(counts), selected))

    def forward_and_sample(
        self,
        tree: DraftTree,
        cache: KVCache,
        sampler: Sampler,
        rows: LogitRows,
        seen_tokens: SeenTokens | None = None,
        computed: ModelOutput | None = None,
    ) -> SampledOutput | None:
        noise = sampler.noise_inputs(rows, seen_tokens) if self.graphs is not None else None
        output = self._replay(self.limits.nodes(tree), cache, self._full_depth, noise) if noise is not None else None
        if output is not None:
            return SampledOutput(output.rows(0, len(tree)), output.samples[: len(tree)])
        is_possible = self.graphs is None or self.device.type != "cpu"  # graphs on a CPU leave it to torch
        if not is_possible or not can_sample(sampler, rows, self._like.dtype, self.device):
            return None
        computed = computed or self.forward(tree, cache)
        return SampledOutput(computed, sample_rows(computed.logits, sampler, rows, seen_tokens))

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        output = self._forward_chain(tokens, cache, self._full_depth)
        cache.commit(list(range(len(tokens))))
        return output

    def _forward_chain(self, tokens: list[int] | Tensor, cache: KVCache, depth: ForwardDepth) -> ModelOutput:
        """The logits of the last token, and the hidden states of all."""
        nodes, count = chain_nodes(tokens), len(tokens)
        if (output := self._replay(nodes, cache, depth)) is not None:
            return output.rows(count - 1, count)
        states = self._forward(nodes, cache, depth)
        return ModelOutput(self._scaled_logits(states.final[-1:]), states.selected)

    def _replay(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, noise: NoiseInputs = NO_NOISE
    ) -> PassOutput | None:
        """The output of a CUDA graph; None without one for so many nodes."""
        graphs = self.graphs
        if graphs is None or graphs.is_disabled or graphs.width_for(len(nodes.depths)) is None:
            return None
        return graphs.run(nodes, self._rows(nodes, cache, depth), cache, depth, noise)

    def _forward(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, recurrent: RecurrentPass | None = None
    ) -> HiddenStates:
        return self._part.forward(self._rows(nodes, cache, depth), nodes, cache, depth, recurrent)

    @torch.inference_mode()
    def _rows(self, nodes: Nodes, cache: KVCache, depth: ForwardDepth) -> Tensor:
        """What the layers on the device read: embeddings, or what the layers elsewhere make of them."""
        rows = self._embed_nodes(nodes.tokens)
        for part in self._earlier_parts:
            rows = part.rows_for_next(rows, nodes, cache, depth)
        return rows.to(self.device, non_blocking=True)

    def _no_rows(self, part: NetworkPart, depth: ForwardDepth) -> Tensor:
        """No rows for a depth, with the size and dtype of what a part reads."""
        rows = self._embed_nodes([])
        return rows.repeat(1, 1 + len(depth.states_before(part.stack.first_layer)))

    @torch.inference_mode()
    def _embed_nodes(self, tokens: list[int] | Tensor) -> Tensor:
        """The rows that the layers read. [N, D]; with a per-layer input [N, D + L * P]"""
        table, per_layer_input = self.weights.embedding, self.weights.per_layer_input
        if isinstance(table, EmbeddingRows) and isinstance(tokens, list) and per_layer_input is None:
            return self._scaled(table.rows_of(tokens))
        on_device = copy_to_device(tokens, table.device)
        rows = self.embed(on_device)
        if per_layer_input is None:
            return rows
        return torch.cat((rows, per_layer_input.embed(on_device, self.device)), dim=-1)


def _fused_ops(attentions: tuple[AttentionDimensions, ...], like: Tensor, *, is_fused: bool) -> list[TorchOps]:
    """Those of each kind of attention on the device of `like`; those of torch unless `is_fused`."""
    with launching_on(like.device):
        ops = [select_fused_ops(each, like) if is_fused else TorchOps(each) for each in attentions]
    if len({each.reads_cache_rows for each in ops}) > 1:  # a pass has masks for all layers, or for none
        return [TorchOps(each) for each in attentions]
    return ops


def _have_one_dtype(weights: Weights) -> bool:
    others = [norm for layer in weights.layers for norm in layer.norms]
    if (per_layer := weights.per_layer_input) is not None:
        others += [per_layer.embedding, per_layer.norm]
    return all(each.dtype == weights.norm.dtype for each in (weights.embedding, *others))


def _is_invariant(part: object) -> bool:
    """Whether all linear layers in this part of a network are batch invariant."""
    if isinstance(part, QuantLinear | ExpertLinear):
        return part.is_batch_invariant
    return not is_dataclass(part) or all(map(_is_invariant, vars(part).values()))
