"""The adapter that runs any causal language model of transformers over our own KV cache.

Implements `specchat.engine.model.Model`. Knows tensors and positions; knows no drafter and no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from specchat.engine.cache import KVCache, KVLayout, KVPool
from specchat.engine.device import sent
from specchat.engine.model import FINAL, Output, longest_text
from specchat.engine.tree import DraftTree
from specchat.forward.batch import Pass, PassShape, chain_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TransformersModel:
    """Any decoder-only model of transformers with attention layers, over our own cache.

    Masks are explicit: a node sees the sure text and its own ancestors, and in a sliding layer only what lies within
    the window by *position*; rows of a tree are not in the order of their positions.
    """

    def __init__(self, network: PreTrainedModel, window: int | None = None, shape: PassShape | None = None) -> None:
        self.network: Any = network.eval()  # transformers' own types change from family to family
        self.shape = shape or PassShape()
        config: Any = network.config.get_text_config()
        self.window = longest_text(window, getattr(config, "max_position_embeddings", None))
        self.vocabulary = int(self.network.get_output_embeddings().weight.shape[0])
        self.chunk, self.widest, self.takes_trees = self.shape.chunk, self.shape.widest, not self.shape.exact
        self.pool = KVPool(self._layout())
        self.bytes = sum(weight.numel() * weight.element_size() for weight in network.parameters())
        self.taps: tuple[int, ...] = ()
        self._caught: dict[int, Tensor] = {}
        self._hooks: list[Any] = []
        kinds = set[str](getattr(config, "layer_types", None) or ())
        sliding = getattr(config, "sliding_window", None)
        self._kinds = tuple(sorted(kinds)) if "sliding_attention" in kinds else ()
        self._sliding = int(sliding) if sliding and (self._kinds or not kinds) else None
        self._adds_mask = config._attn_implementation == "eager"  # noqa: SLF001 - else a mask is bool

    def tap(self, taps: tuple[int, ...]) -> None:
        """From now on, every output carries these hidden states."""
        for hook in self._hooks:
            hook.remove()
        decoder = self.network.get_decoder()
        layers = [decoder.embed_tokens, *decoder.layers]
        places = {tap: decoder.norm if tap == FINAL else layers[tap] for tap in taps}
        self.taps, self._caught = taps, {}
        self._hooks = [module.register_forward_hook(self._catcher(tap)) for tap, module in places.items()]

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings as the first layer gets them. [n] -> [n, D]"""
        return self.network.get_input_embeddings()(tokens)

    @torch.inference_mode()
    def score(self, hidden: Tensor) -> Tensor:
        """The output matrix alone. [n, D] -> [n, V]"""
        return self.network.get_output_embeddings()(hidden)

    def forward(self, tree: DraftTree, cache: KVCache) -> Output:
        """Score every node of the tree in one pass. [N, V]"""
        output = self._run(self.shape.of_tree(tree, cache), cache)
        return Output(output.logits[: len(tree)], output.features[: len(tree)] if output.features is not None else None)

    def read(self, tokens: list[int] | Tensor, cache: KVCache) -> Output:
        """Take in a chunk of a prompt and commit it. Logits [1, V], features [len(tokens), taps * D]"""
        output = self._run(self.shape.behind(chain_of(tokens), cache), cache, last_only=True)
        cache.commit(list(range(len(tokens))))
        return output

    @torch.inference_mode()
    def _run(self, nodes: Pass, cache: KVCache, last_only: bool = False) -> Output:
        device = self.network.device
        out = self.network(
            input_ids=sent(nodes.tokens, device)[None],
            position_ids=nodes.positions.to(device)[None],
            attention_mask=self._masks(nodes),
            past_key_values=_as_past(cache, len(self.pool.layout.shapes), nodes.width),
            use_cache=True,
            logits_to_keep=1 if last_only else 0,
        )
        return Output(out.logits[0], self._features())

    def _layout(self) -> KVLayout:
        return layout_of(self.network)

    def _features(self) -> Tensor | None:
        return torch.cat([self._caught[tap] for tap in self.taps], dim=-1) if self.taps else None

    def _masks(self, nodes: Pass) -> Tensor | dict[str, Tensor]:
        """What each kind of layer sees. [1, 1, N, width]"""
        if self._sliding is None:
            return self._mask(nodes.sees)
        near = nodes.near(self._sliding)
        if not self._kinds:
            return self._mask(near)
        return {kind: self._mask(near if kind == "sliding_attention" else nodes.sees) for kind in self._kinds}

    def _mask(self, sees: Tensor) -> Tensor:
        mask = sees.to(self.network.device)[None, None]
        if not self._adds_mask:
            return mask
        lowest = torch.finfo(self.network.dtype).min
        return torch.zeros(mask.shape, dtype=self.network.dtype, device=mask.device).masked_fill_(~mask, lowest)

    def _catcher(self, tap: int) -> Any:
        def catch(_module: nn.Module, _inputs: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            self._caught[tap] = hidden[0]

        return catch


def layout_of(network: PreTrainedModel) -> KVLayout:
    """What a row of keys and values holds, found by asking the network itself with one token."""
    from transformers import DynamicCache

    probe: Any = DynamicCache()
    with torch.inference_mode():
        network(input_ids=torch.zeros(1, 1, dtype=torch.long, device=network.device), past_key_values=probe)
    shapes = tuple((lay.keys.shape[1], lay.keys.shape[3], lay.values.shape[3]) for lay in probe.layers)
    return KVLayout(shapes, probe.layers[0].keys.dtype, network.device)


def _as_past(cache: KVCache, layers: int, width: int) -> Any:
    """Our cache, as transformers wants to see it. Imported late: transformers takes seconds to import."""
    from specchat.forward.transformers_cache import Past

    return Past(cache, layers, width)
