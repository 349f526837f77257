"""The recurrent layer of Qwen3.5 and Qwen3-Next: a short convolution and a gated delta rule (arXiv 2412.06464).

Its state has one size for any length of text. A pass over draft tokens leaves the state as it was and records its rows,
which are applied to it when they are committed; the nodes of a tree continue the states of their parents. Knows
tensors; knows no text and no KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from specchat.forward.linear.linear import Linear
from specchat.forward.recurrences import (
    Convolution,
    DeltaGates,
    DeltaRule,
    convolve,
    delta_gates,
    gated_rms_norm,
    select_rows,
    step_delta_rule,
)

if TYPE_CHECKING:
    from specchat.forward.llama.decoder_layer import LayerContext


@dataclass(frozen=True)
class DeltaNetSizes:
    key_heads: int
    heads: int  # of values; a key head serves some consecutive ones
    key_size: int
    value_size: int
    kernel: int  # rows that a convolution sees

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_size

    @property
    def values(self) -> int:
        return self.heads * self.value_size

    @property
    def channels(self) -> int:
        """Of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values


@dataclass(frozen=True)
class LayerState:
    """What a layer keeps of a text."""

    columns: Tensor  # [kernel - 1, channels]: the last inputs of the convolution
    matrices: Tensor  # [1, H, keys, values], float32

    @classmethod
    def empty(cls, sizes: DeltaNetSizes, like: Tensor) -> LayerState:
        columns = like.new_zeros(sizes.kernel - 1, sizes.channels)
        return cls(columns, torch.zeros(1, sizes.heads, sizes.key_size, sizes.value_size, device=like.device))

    @property
    def bytes(self) -> int:
        return self.columns.nbytes + self.matrices.nbytes

    def copy(self, device: torch.device) -> LayerState:
        return LayerState(self.columns.to(device, copy=True), self.matrices.to(device, copy=True))

    def copy_from(self, other: LayerState) -> None:
        self.columns.copy_(other.columns)
        self.matrices.copy_(other.matrices)


@dataclass(frozen=True)
class LayerRows:
    """The inputs of a layer's recurrences in one pass."""

    columns: Tensor  # [N, channels]
    rule: DeltaRule

    def apply(self, state: LayerState, path: Sequence[int]) -> None:
        """Bring the state that the pass began with after the rows of a path."""
        step_delta_rule(self.rule.along(path), into=state.matrices)
        columns = torch.cat((state.columns, select_rows(self.columns, path)))
        state.columns.copy_(columns[-len(state.columns) :])


@dataclass(frozen=True)
class MixerInputs:
    """What the recurrences of a layer read of N rows."""

    columns: Tensor  # of the convolution [N, channels]; rows may lie apart
    projected: Tensor  # gates of the rule: those of beta, then those of the decay [N, 2 H]
    output_gates: Tensor  # [N, H, values]; rows may lie apart


class RecurrentPass(Protocol):
    """The states that one pass begins with, and what becomes of its rows."""

    def mix(self, net: GatedDeltaNet, layer: int, inputs: MixerInputs, epsilon: float, /) -> Tensor:
        """The normalized and gated output of a layer's convolution and delta rule. -> [N, H, values]"""
        ...


@dataclass(frozen=True)
class SteppedPass:
    """A pass on a CPU, over nodes whose parents the host knows."""

    states: dict[int, LayerState]  # by layer
    windows: Tensor  # int64 [N, kernel]: the rows of the convolution that end at each node; the state's come first
    parents: Tensor | None  # int64 [N]; None: a chain
    next_states: dict[int, LayerState] | None  # take the states after the last row; None: rows are recorded
    recorded: dict[int, LayerRows]

    @classmethod
    def over(
        cls, parents: list[int], states: dict[int, LayerState], next_states: dict[int, LayerState] | None, kernel: int
    ) -> SteppedPass:
        """A pass over nodes with these parents. A root has the parent -1, and comes after the rows of the state."""
        is_chain = parents == list(range(-1, len(parents) - 1))
        places = [_window(parents, node, kernel) for node in range(len(parents))]
        parent_rows = None if is_chain else torch.tensor(parents)
        return cls(states, torch.tensor(places), parent_rows, next_states, {})

    def mix(self, net: GatedDeltaNet, layer: int, inputs: MixerInputs, epsilon: float) -> Tensor:
        state, sizes, count = self.states[layer], net.sizes, len(inputs.columns)
        history = torch.cat((state.columns, inputs.columns))
        convolved = convolve(Convolution(history, self.windows, net.convolution, None, has_silu=True))
        queries, keys, values = convolved.split((sizes.keys, sizes.keys, sizes.values), dim=-1)
        decay, beta = delta_gates(inputs.projected, net.gates)
        rule = DeltaRule(
            state.matrices,
            queries.view(count, sizes.key_heads, -1),
            keys.view(count, sizes.key_heads, -1),
            values.view(count, sizes.heads, -1),
            decay[..., None],
            beta,
            self.parents,
        )
        if self.next_states is None:
            output = step_delta_rule(rule)
            self.recorded[layer] = LayerRows(inputs.columns, rule)
        else:
            following = self.next_states[layer]
            output = step_delta_rule(rule, into=following.matrices)
            following.columns.copy_(history[-len(following.columns) :])
        return gated_rms_norm(output, inputs.output_gates, net.norm, epsilon)


def _window(parents: list[int], node: int, kernel: int) -> list[int]:
    places = [node]
    while len(places) < kernel:
        places.append(parents[places[-1]] if places[-1] >= 0 else places[-1] - 1)
    return [place + kernel - 1 for place in reversed(places)]


@dataclass(frozen=True)
class GatedDeltaNet:
    """[N, D] -> [N, D]. Queries, keys, values and output gates are one matmul, the gates of the rule another."""

    sizes: DeltaNetSizes
    qkvz_proj: Linear  # -> channels + H * values
    ba_proj: Linear  # -> 2 H
    are_grouped: bool  # outputs of both stand by key head, each with its share of everything (Qwen3-Next)
    convolution: Tensor  # [kernel, channels]
    gates: DeltaGates
    norm: Tensor  # [values]
    out_proj: Linear

    def __call__(self, hidden_states: Tensor, context: LayerContext, layer: int, _window: int | None) -> Tensor:
        pass_ = context.batch.recurrent
        assert pass_ is not None, "a pass over recurrent layers without their states"
        columns, output_gates = self._project(hidden_states)
        inputs = MixerInputs(columns, self._project_gates(hidden_states), output_gates)
        return self.out_proj(pass_.mix(self, layer, inputs, context.ops.dimensions.epsilon).flatten(1))

    def _project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs of the convolution [N, channels], and the output gates [N, H, values]."""
        sizes, projected = self.sizes, self.qkvz_proj(hidden_states)
        if not self.are_grouped:
            columns, gates = projected.split((sizes.channels, sizes.values), dim=-1)
            return columns, gates.view(len(gates), sizes.heads, -1)
        values = sizes.values // sizes.key_heads
        grouped = projected.view(len(projected), sizes.key_heads, -1)
        *parts, gates = grouped.split((sizes.key_size, sizes.key_size, values, values), dim=-1)
        columns = torch.cat([part.flatten(1) for part in parts], dim=-1)
        return columns, gates.reshape(len(gates), sizes.heads, -1)

    def _project_gates(self, hidden_states: Tensor) -> Tensor:
        """Those of beta, then those of the decay. [N, 2 H]"""
        projected = self.ba_proj(hidden_states)
        if not self.are_grouped:
            return projected
        pairs = projected.view(len(projected), self.sizes.key_heads, 2, -1)
        return pairs.transpose(1, 2).flatten(1)
