"""Networks of recurrent and attention layers in our own passes (Qwen3.5, Qwen3-Next): LlamaModel with states of texts.

Every row of a recurrent layer is stepped, in prompts as in decoding, so a row has the same bits in every pass. A state
has no rollback: a pass over a draft tree leaves the states as they were, and the committed nodes are applied to them
before the next pass. To go further back, a text has checkpoints in main memory: copies of its states at every multiple
of `CHECKPOINT_TOKENS` and at the ends of prompts and answers. Keys and values stay in the KV cache and are not copied.

What is read again after a rollback does not depend on drafts: checkpoints are at the same tokens in plain decoding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, forms_of
from specchat.engine.cache_sizes import CHECKPOINT_TOKENS, MAX_CHECKPOINT_BYTES
from specchat.engine.checkpoints import MIN_TURN_TOKENS, Checkpoints, keep_within
from specchat.engine.model import ModelOutput, TextStates
from specchat.forward.batch import ForwardDepth, HiddenStates, Nodes
from specchat.forward.llama.gated_delta_net import GatedDeltaNet, LayerRows, LayerState, RecurrentPass, SteppedPass
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.recurrences import CPU

STORED_STATES = 3  # with a file of a text: the last ones; a state is as large as the rows of about a thousand tokens
States = dict[int, LayerState]  # by layer


@dataclass(frozen=True)
class _Checkpoint:
    length: int
    states: States

    @property
    def bytes(self) -> int:
        return _bytes_of(self.states)


@dataclass
class HybridText:
    states: States  # after `length` tokens
    length: int = 0
    recorded: dict[int, LayerRows] = field(default_factory=dict[int, LayerRows])  # of the last pass over a tree
    checkpoints: Checkpoints[_Checkpoint] = field(default_factory=Checkpoints[_Checkpoint])
    is_prompt: bool = True  # the last pass was a part of a prompt
    waiting_rows: Sequence[Tensor] = ()  # recorded on a GPU, while another text has its place there


class HybridModel(LlamaModel):
    supports_self_drafting = False  # a draft pass of its own would have to go back in their states

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        layers = enumerate(self.weights.layers)
        self._nets = {index: layer.self_attn for index, layer in layers if isinstance(layer.self_attn, GatedDeltaNet)}
        self._kernel = next(iter(self._nets.values())).sizes.kernel
        self._texts: WeakKeyDictionary[KVCache, HybridText] = WeakKeyDictionary()
        self._spare = self._empty_states()
        self.state_forms = forms_of(_named(self._spare))
        self.state_bytes = _bytes_of(self._spare)  # of one text, without its checkpoints

    def prefill(self, tokens: list[int] | Tensor, cache: KVCache) -> ModelOutput:
        """In parts that end where a checkpoint is due."""
        outputs = list[ModelOutput]()
        while len(tokens):
            count = CHECKPOINT_TOKENS - cache.length % CHECKPOINT_TOKENS
            outputs.append(super().prefill(tokens[:count], cache))
            tokens = tokens[count:]
        hidden_states = [each.hidden_states for each in outputs if each.hidden_states is not None]
        return ModelOutput(outputs[-1].logits, torch.cat(hidden_states) if hidden_states else None)

    @torch.inference_mode()
    def copy_states(self, cache: KVCache, length: int) -> TextStates:
        text = self._text_at(cache)
        states = {each.length: each.states for each in text.checkpoints.newest(STORED_STATES - 1, length)}
        states |= {text.length: copy_of(text.states, CPU)} if text.length <= length else {}
        return {length: _named(each) for length, each in states.items()}

    def restore_states(self, cache: KVCache, states: TextStates) -> None:
        *earlier, last = ((length, _unnamed(states[length])) for length in sorted(states))
        self._texts[cache] = text = HybridText(copy_of(last[1], self.device), last[0], is_prompt=False)
        for length, each in earlier:
            text.checkpoints.add(_Checkpoint(length, each))
        self._keep_within_budget()

    def checkpoint_bytes(self) -> int:
        """Of all texts."""
        return sum(text.checkpoints.bytes for text in self._texts.values())

    @torch.inference_mode()
    def _forward(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, recurrent: RecurrentPass | None = None
    ) -> HiddenStates:
        if recurrent is not None:
            return super()._forward(nodes, cache, depth, recurrent)
        text = self._begin_pass(nodes, cache)
        next_states = self._spare if nodes.is_prompt else None
        stepped = SteppedPass.over(nodes.parents, text.states, next_states, self._kernel)
        output = super()._forward(nodes, cache, depth, stepped)
        if next_states is not None:
            text.states, self._spare = next_states, text.states
            text.length += len(nodes.depths)
        text.recorded = stepped.recorded
        self._update_cache(cache, text)
        return output

    def _begin_pass(self, nodes: Nodes, cache: KVCache) -> HybridText:
        """The text with the states that the pass begins with."""
        text = self._text_at(cache)
        is_due = text.length % CHECKPOINT_TOKENS == 0
        if is_due or text.is_prompt != nodes.is_prompt:
            self._add_checkpoint(text, 1 if is_due else MIN_TURN_TOKENS)
        text.is_prompt = nodes.is_prompt
        return text

    def _apply(self, text: HybridText, path: Sequence[int]) -> None:
        """Bring the states after these nodes of the last pass."""
        for layer, rows in text.recorded.items():
            rows.apply(text.states[layer], path)

    def _text_at(self, cache: KVCache) -> HybridText:
        """The states after the committed tokens of a text."""
        text = self._texts.pop(cache, None) or HybridText(self._empty_states())
        self._texts[cache] = text  # the text that was used last is the last one
        if cache.length < text.length:
            checkpoint = text.checkpoints.go_back(cache.length)
            text.states = copy_of(checkpoint.states, self.device) if checkpoint else self._empty_states()
            text.length, text.recorded = cache.length, {}
        path = cache.last_path[: cache.length - text.length]
        while path:
            count = CHECKPOINT_TOKENS - text.length % CHECKPOINT_TOKENS
            self._apply(text, path[:count])
            text.length += len(path[:count])
            path = path[count:]
            if path:
                self._add_checkpoint(text, 1)
        text.recorded = {}
        return text

    def _add_checkpoint(self, text: HybridText, min_tokens: int) -> None:
        """Keep the current states, if they are so many tokens behind the last checkpoint."""
        is_new = text.length >= text.checkpoints.last_length + min_tokens
        if not is_new or self.state_bytes > MAX_CHECKPOINT_BYTES:
            return
        text.checkpoints.add(_Checkpoint(text.length, copy_of(text.states, CPU)))
        self._keep_within_budget()

    def _keep_within_budget(self) -> None:
        keep_within(MAX_CHECKPOINT_BYTES, [each.checkpoints for each in self._texts.values()])
        for cache, each in self._texts.items():
            self._update_cache(cache, each)

    def _update_cache(self, cache: KVCache, text: HybridText) -> None:
        """What the cache has to know of the states: how far it can go back, and what they take."""
        next_due = (text.length // CHECKPOINT_TOKENS + 1) * CHECKPOINT_TOKENS  # reached by committing recorded rows
        cache.checkpoints = (*text.checkpoints.lengths, next_due)
        cache.rollback_floor, cache.rollback_rows = text.length, 1
        cache.network_bytes = self.state_bytes + text.checkpoints.bytes

    def _empty_states(self) -> States:
        like = self.weights.norm
        return {layer: LayerState.empty(net.sizes, like) for layer, net in self._nets.items()}


def copy_of(states: States, device: torch.device) -> States:
    return {layer: state.copy(device) for layer, state in states.items()}


def _bytes_of(states: States) -> int:
    return sum(state.bytes for state in states.values())


def _named(states: States) -> dict[str, Tensor]:
    """The tensors of all layers, by names that `_unnamed` reads."""
    return {
        f"{layer} {name}": tensor
        for layer, state in states.items()
        for name, tensor in (("columns", state.columns), ("matrices", state.matrices))
    }


def _unnamed(tensors: Mapping[str, Tensor]) -> States:
    layers = [int(name.removesuffix(" columns")) for name in tensors if name.endswith(" columns")]
    return {layer: LayerState(tensors[f"{layer} columns"], tensors[f"{layer} matrices"]) for layer in layers}
