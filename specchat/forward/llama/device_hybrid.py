"""Hybrid networks on a GPU: passes over few rows leave the states of a text as they were, and may be CUDA graphs.

The states of one text lie where graphs read them; those of another wait elsewhere, and change places with them when it
has a pass. A part of a prompt with few rows is computed as a tree is: its rows are recorded, and applied to the states
when they are committed. Knows tensors; knows no text.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.device import copy_to_device
from specchat.engine.sampling import NO_NOISE, NoiseInputs
from specchat.forward.batch import MASK_BITS, ForwardDepth, HiddenStates, Nodes, ancestor_masks
from specchat.forward.cuda.cuda_graphs import PassOutput
from specchat.forward.cuda.device_states import DevicePass, DeviceStates
from specchat.forward.llama.gated_delta_net import RecurrentPass
from specchat.forward.llama.hybrid import HybridModel, HybridText, copy_of


class DeviceHybridModel(HybridModel):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.max_rows = min(self.max_rows, MASK_BITS)
        self._working = DeviceStates(self._nets, self.weights.norm)
        self._resident: HybridText | None = None  # whose states, or rows, the working ones are
        self._recorded_rows = 0

    def _recurrent_pass(self, ancestors: Tensor) -> RecurrentPass:
        return DevicePass(self._working, ancestors)

    @torch.inference_mode()
    def _replay(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, noise: NoiseInputs = NO_NOISE
    ) -> PassOutput | None:
        if self.graphs is None or self.graphs.is_disabled or len(nodes.depths) > MASK_BITS:
            return None
        text = self._begin_pass(nodes, cache)
        if (output := super()._replay(nodes, cache, depth, noise)) is not None:
            self._recorded_rows = len(nodes.depths)
            self._update_cache(cache, text)
        return output

    @torch.inference_mode()
    def _forward(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, recurrent: RecurrentPass | None = None
    ) -> HiddenStates:
        text, rows = self._begin_pass(nodes, cache), len(nodes.depths)
        if rows <= MASK_BITS:
            ancestors = copy_to_device(ancestor_masks(nodes.attention_mask), self.device)
            output = super()._forward(nodes, cache, depth, recurrent or self._recurrent_pass(ancestors))
            self._recorded_rows = rows
        else:
            output = super()._forward(nodes, cache, depth, recurrent or DevicePass(self._working, None, self._spare))
            for layer, state in self._spare.items():
                self._working.layers[layer].copy_from(state)
            text.length, self._recorded_rows = text.length + rows, 0
        self._update_cache(cache, text)
        return output

    def _begin_pass(self, nodes: Nodes, cache: KVCache) -> HybridText:
        text = super()._begin_pass(nodes, cache)
        self._enter(text)
        return text

    def _apply(self, text: HybridText, path: Sequence[int]) -> None:
        self._enter(text)
        self._working.apply(path)

    def _enter(self, text: HybridText) -> None:
        """Make its states, and the rows that were recorded of it, those that the kernels read."""
        if text.states is self._working.layers:
            return
        other = self._resident
        if other is not None and other.states is self._working.layers:
            other.states = copy_of(other.states, self.device)
            other.waiting_rows = self._working.copy_recording(self._recorded_rows)
        for layer, state in text.states.items():
            self._working.layers[layer].copy_from(state)
        self._working.restore_recording(text.waiting_rows)
        text.states, text.waiting_rows, self._resident = self._working.layers, (), text
