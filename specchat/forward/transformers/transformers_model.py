"""The adapter that runs any causal language model of transformers over our KV cache.

Implements `specchat.engine.model.Model`. Knows tensors and positions; knows no drafter and no text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import copy_to_device
from specchat.engine.model import FINAL_NORM, CaptureProgress, ModelOutput, SampledOutput, limit_context_window
from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits, RowBatch, chain_nodes
from specchat.forward.native.native_sampling import can_sample, sample_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SLIDING, CHUNKED = "sliding_attention", "chunked_attention"
CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")  # the first since transformers 5.24
WINDOW_LAYERS = (SLIDING, CHUNKED)  # layer types of transformers that do not see the whole text
TREES, CHAINS, OWN_CACHE = "trees", "chains", "plain over its own cache"  # forms of ours; those of plugins have others


@dataclass(frozen=True)
class DecodingForm:
    """How a network is decoded, and why not better."""

    name: str = TREES
    reason: str = ""

    @property
    def has_own_cache(self) -> bool:
        """Whether the network keeps its keys, values and states itself."""
        return self.name not in (TREES, CHAINS)


class TransformersModel:
    """Any decoder-only model of transformers with attention layers.

    Attention masks are explicit: a node sees the committed text and its ancestors, and in a layer with a sliding window
    only rows within the window by position, because rows of a tree are not in the order of their positions.
    """

    def __init__(
        self, network: PreTrainedModel, context_window: int | None = None, limits: BatchLimits | None = None
    ) -> None:
        self.network: Any = network.eval()  # transformers' own types change from family to family
        self.limits = limits or BatchLimits()
        config: Any = network.config.get_text_config()
        self.context_window = limit_context_window(context_window, getattr(config, "max_position_embeddings", None))
        self._parameters = frozenset(inspect.signature(self.network.forward).parameters)
        self._cache_name = cache_name_of(network)
        self.vocab_size = int(self.network.get_output_embeddings().weight.shape[0])
        self.prefill_chunk, self.max_rows = self.limits.prefill_chunk, self.limits.max_rows
        self.supports_trees, self.form = not self.limits.exact, DecodingForm()
        self.pool = KVPool(self._kv_layout())
        self.supports_self_drafting, self.has_graphs, self.graph_widths = False, False, ()
        self.embedding_table = self.attention_windows = None
        self.layer_count = len(self.pool.layout.shapes)  # some of them may have no rows
        self.is_exact = self.limits.exact and not _has_experts(network)
        self.bytes = quantized_bytes(network) + sum(weight.nbytes for weight in network.parameters())
        self.hidden_state_layers: tuple[int, ...] = ()
        self._captured: dict[int, Tensor] = {}
        self._hooks: list[Any] = []
        self._config = config
        layer_types = set[str](getattr(config, "layer_types", None) or ())
        has_windows = not layer_types.isdisjoint(WINDOW_LAYERS)
        self._layer_types = tuple(sorted(layer_types)) if has_windows else ()
        has_one_window = not layer_types and bool(getattr(config, "sliding_window", None))
        self._common_type = SLIDING if has_one_window else ""  # where layers are alike
        self._uses_additive_mask = config._attn_implementation == "eager"  # noqa: SLF001 - others take bool masks

    def set_hidden_state_layers(self, hidden_state_layers: tuple[int, ...]) -> None:
        for hook in self._hooks:
            hook.remove()
        self.hidden_state_layers, self._captured, self._hooks = hidden_state_layers, {}, []
        if not hidden_state_layers:  # a network without the usual names still decodes without a head
            return
        decoder = self.network.get_decoder()
        layers = [decoder.embed_tokens, *decoder.layers]
        modules = {layer: decoder.norm if layer == FINAL_NORM else layers[layer] for layer in hidden_state_layers}
        self._hooks = [module.register_forward_hook(self._capture_hook(layer)) for layer, module in modules.items()]

    @property
    def limitation(self) -> str:
        """What its form is missing, in one line for the user; empty for nothing."""
        what = "drafts are chains" if self.max_rows > 1 else "answers are not drafted"
        return "" if self.form.name == TREES else f"{what}, because {self.form.reason}"

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        return self.network.get_input_embeddings()(tokens)

    @torch.inference_mode()
    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        return self.network.get_output_embeddings()(hidden_states)

    @property
    def lm_head(self) -> Callable[[Tensor], Tensor]:
        return self.compute_logits

    def capture_graphs(self, progress: CaptureProgress) -> None:
        """It has none."""

    def forward(self, tree: DraftTree, cache: KVCache) -> ModelOutput:
        output, count = self._forward(self.limits.batch_for_nodes(self.limits.nodes(tree), cache), cache), len(tree)
        hidden_states = output.hidden_states[:count] if output.hidden_states is not None else None
        return ModelOutput(output.logits[:count], hidden_states)

    def forward_and_sample(
        self,
        tree: DraftTree,
        cache: KVCache,
        sampler: Sampler,
        rows: LogitRows,
        seen_tokens: SeenTokens | None = None,
        computed: ModelOutput | None = None,
    ) -> SampledOutput | None:
        """By kernels; None where there are none."""
        if not can_sample(sampler, rows, self.network.dtype, self.network.device):
            return None
        output = computed or self.forward(tree, cache)
        return SampledOutput(output, sample_rows(output.logits, sampler, rows, seen_tokens))

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        output = self._forward(self.limits.batch_for_nodes(chain_nodes(tokens), cache), cache, last_only=True)
        cache.commit(list(range(len(tokens))))
        return output

    @torch.inference_mode()
    def _forward(self, batch: RowBatch, cache: KVCache, last_only: bool = False) -> ModelOutput:
        from specchat.forward.transformers.transformers_cache import TransformersCache  # its import takes seconds

        device = self.network.device
        out = self.network(
            **self._accepted(
                input_ids=copy_to_device(batch.tokens, device)[None],
                position_ids=batch.positions.to(device)[None],
                attention_mask=self._attention_masks(batch),
                use_cache=True,
                logits_to_keep=1 if last_only else 0,
            ),
            **{self._cache_name: TransformersCache(cache, len(self.pool.layout.shapes), batch.kv_length)},
        )
        return ModelOutput(out.logits[0, -1:] if last_only else out.logits[0], self._hidden_states())

    def _accepted(self, **arguments: Any) -> dict[str, Any]:
        """Those arguments of a pass that this family has; an ignored one would be an error, or be dropped silently."""
        return {name: value for name, value in arguments.items() if name in self._parameters}

    def _kv_layout(self) -> KVLayout:
        return kv_layout_of(self.network, self._cache_name)

    def _hidden_states(self) -> Tensor | None:
        selected = [self._captured[layer] for layer in self.hidden_state_layers]
        return torch.cat(selected, dim=-1) if selected else None

    def _attention_masks(self, batch: RowBatch) -> Tensor | dict[str, Tensor]:
        """The mask of each layer type. [1, 1, N, kv_length]"""
        if not self._layer_types:
            return self._attention_mask(self._visible(batch, self._common_type))
        return {layer_type: self._attention_mask(self._visible(batch, layer_type)) for layer_type in self._layer_types}

    def _visible(self, batch: RowBatch, layer_type: str) -> Tensor:
        if layer_type == SLIDING:
            return batch.sliding_window_mask(self._config.sliding_window)
        if layer_type == CHUNKED:
            return batch.chunk_mask(self._config.attention_chunk_size)
        return batch.attention_mask

    def _attention_mask(self, allowed: Tensor) -> Tensor:
        mask = allowed.to(self.network.device)[None, None]
        if not self._uses_additive_mask:
            return mask
        lowest = torch.finfo(self.network.dtype).min
        return torch.zeros(mask.shape, dtype=self.network.dtype, device=mask.device).masked_fill_(~mask, lowest)

    def _capture_hook(self, layer: int) -> Any:
        def capture(_module: nn.Module, _inputs: Any, output: Any) -> None:
            hidden_states = output[0] if isinstance(output, tuple) else output
            self._captured[layer] = hidden_states[0]

        return capture


def _has_experts(network: PreTrainedModel) -> bool:
    """Whether rows share experts: how many do depends on the other rows of a pass, and so may the rounding of a row."""
    return any(
        name.rpartition(".")[2] == "experts" or "Experts" in type(module).__name__
        for name, module in network.named_modules()
    )


def quantized_bytes(network: nn.Module) -> int:
    """The bytes of the weights that a plugin has quantized (`register_network_quantizers`); they are no parameters."""
    tensors = (value for each in network.modules() for value in vars(each).values() if isinstance(value, Tensor))
    return sum(getattr(tensor, "quantized_bytes", 0) for tensor in tensors)


def cache_name_of(network: PreTrainedModel) -> str:
    """What this family and this version of transformers call the cache, as a parameter and in the output."""
    parameters = inspect.signature(network.forward).parameters
    return next((name for name in CACHE_NAMES if name in parameters), CACHE_NAMES[0])


def kv_layout_of(network: PreTrainedModel, cache_name: str) -> KVLayout:
    """The shape of keys and values in every layer, measured with a pass over one token."""
    from transformers import DynamicCache

    probe: Any = DynamicCache()
    with torch.inference_mode():
        network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.device), **{cache_name: probe})
    if not probe.layers:
        raise ValueError("its passes write no keys and values")
    shapes = tuple((layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in probe.layers)
    return KVLayout(shapes, probe.layers[0].keys.dtype, network.device)
