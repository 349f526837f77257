"""The recurrent states of the text that a GPU works on, where CUDA graphs read them, and the pass that does.

A pass over up to MASK_BITS rows leaves the states as they were and records its rows beside them; one over more rows,
a part of a prompt, writes the states after it elsewhere. Before a device is used, its kernels are compared with torch,
and a tree with its paths, bit by bit. Knows tensors and layers; knows no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from specchat.engine.device import copy_to_device
from specchat.forward.batch import MASK_BITS
from specchat.forward.cuda import triton_recurrences as kernels
from specchat.forward.cuda.kernel_trial import passes
from specchat.forward.linear.linear import TOLERANCE, sample_tensor
from specchat.forward.llama.gated_delta_net import DeltaNetSizes, GatedDeltaNet, LayerState, MixerInputs, SteppedPass
from specchat.forward.recurrences import CPU, NORM_EPSILON, DeltaGates

SAMPLE_PARENTS = (-1, 0, 0, 2, 3)
SAMPLE_ANCESTORS = (0b1, 0b11, 0b101, 0b1101, 0b11101)
SAMPLE_PATH = (0, 2, 3, 4)


class DeviceStates:
    """States of all recurrent layers, and the rows of the last pass over a tree."""

    def __init__(self, nets: Mapping[int, GatedDeltaNet], like: Tensor) -> None:
        self._sizes = sizes = next(iter(nets.values())).sizes
        gates = [(net.gates.rates, net.gates.biases) for net in nets.values()]
        self._gates = DeltaGates(*(torch.stack(each) for each in zip(*gates, strict=True)))
        self._chain = copy_to_device(range(MASK_BITS), like.device)
        empty, row_sizes = LayerState.empty(sizes, like), (sizes.channels, sizes.channels, 2 * sizes.heads)
        self._columns, self._matrices = (
            each.new_zeros(len(nets), *each.shape) for each in (empty.columns, empty.matrices)
        )
        self._recording = kernels.Recording(*(like.new_zeros(len(nets), MASK_BITS, size) for size in row_sizes))
        self.layers = dict(zip(nets, map(LayerState, self._columns, self._matrices), strict=True))
        stored = zip(*vars(self._recording).values(), strict=True)
        self.recordings = {layer: kernels.Recording(*each) for layer, each in zip(nets, stored, strict=True)}

    def apply(self, path: Sequence[int]) -> None:
        """Bring the states after these nodes of the last pass."""
        is_prefix = all(index == node for index, node in enumerate(path))
        nodes = self._chain if is_prefix else copy_to_device(path, self._chain.device)
        kernels.apply_path(self._sizes, self._matrices, self._gates, self._recording, nodes, len(path))
        rows = self._recording.columns.index_select(1, nodes[max(len(path) - self._sizes.kernel, 0) : len(path)])
        self._columns.copy_(torch.cat((self._columns, rows), dim=1)[:, 1 - self._sizes.kernel :])

    def copy_recording(self, rows: int) -> list[Tensor]:
        """The first rows of the last pass, for `restore_recording`."""
        return [each[:, :rows].clone() for each in vars(self._recording).values()]

    def restore_recording(self, recorded: Sequence[Tensor]) -> None:
        for stored, rows in zip(vars(self._recording).values(), recorded, strict=False):
            stored[:, : rows.shape[1]] = rows


@dataclass(frozen=True)
class DevicePass:
    """A pass by Triton kernels: over a tree whose rows are recorded, or over a chain that the states follow."""

    states: DeviceStates
    ancestors: Tensor | None  # int64 [N]; None: a chain
    next_states: Mapping[int, LayerState] | None = None  # take those after a chain

    def mix(self, net: GatedDeltaNet, layer: int, inputs: MixerInputs, epsilon: float) -> Tensor:
        state, inputs = self.states.layers[layer], replace(inputs, projected=inputs.projected.contiguous())
        if self.ancestors is not None:
            recording = self.states.recordings[layer]
            kernels.convolve(net, inputs, state.columns, recording, self.ancestors)
            output = kernels.step_tree(net, recording, state.matrices, self.ancestors)
        else:
            assert self.next_states is not None, "a chain without a place for the states after it"
            following, rows = self.next_states[layer], inputs.columns.contiguous()
            chain = kernels.Recording(rows, torch.empty_like(rows), inputs.projected)
            kernels.convolve(net, inputs, state.columns, chain)
            output = kernels.step_chain(net, chain, state.matrices, following.matrices)
            following.columns.copy_(torch.cat((state.columns, rows))[-len(following.columns) :])
        return kernels.gated_rms_norm(output, inputs.output_gates, net.norm, epsilon)


@lru_cache
def can_step(sizes: DeltaNetSizes, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels compile for this GPU and compute what torch computes, and a node as the path to it."""
    is_possible = dtype in TOLERANCE and sizes.kernel > 1
    few_heads = replace(sizes, heads=sizes.heads // sizes.key_heads, key_heads=1)
    return is_possible and passes(lambda: _are_right(few_heads, dtype, device), "Triton kernels of recurrences")


@torch.inference_mode()
def _are_right(sizes: DeltaNetSizes, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a tree has the numbers of torch, and a path, one row at a time or as a chain, the bits of the tree."""
    reference, sample = _Sample.on(CPU, sizes, dtype), _Sample.on(device, sizes, dtype)
    stepped = SteppedPass.over(list(SAMPLE_PARENTS), {0: reference.state}, None, sizes.kernel)
    expected = stepped.mix(reference.net, 0, reference.inputs, NORM_EPSILON)
    states = [DeviceStates({0: sample.net}, sample.net.norm) for _ in range(2)]
    tree, alone, after = (*(each.layers[0] for each in states), sample.state.copy(device))
    tree.copy_from(sample.state)
    alone.copy_from(sample.state)

    def run(on: DeviceStates, ancestors: Sequence[int] | None, rows: Sequence[int]) -> Tensor:
        masks = None if ancestors is None else copy_to_device(ancestors, device)
        inputs = MixerInputs(*(each[list(rows)] for each in vars(sample.inputs).values()))
        return DevicePass(on, masks, {0: after}).mix(sample.net, 0, inputs, NORM_EPSILON)

    chain, outputs = run(states[0], None, SAMPLE_PATH), run(states[0], SAMPLE_ANCESTORS, range(len(SAMPLE_PARENTS)))
    states[0].apply(SAMPLE_PATH)
    pairs = [(chain, outputs[list(SAMPLE_PATH)])]
    for node in SAMPLE_PATH:
        pairs.append((run(states[1], [1], [node])[0], outputs[node]))
        states[1].apply([0])
    pairs += [(each.matrices, alone.matrices) for each in (tree, after)]
    pairs += [(each.columns, alone.columns) for each in (tree, after)]
    is_near = torch.allclose(outputs.cpu(), expected, TOLERANCE[dtype], TOLERANCE[dtype])
    return is_near and all(torch.equal(*pair) for pair in pairs)


@dataclass(frozen=True)
class _Sample:
    """A recurrent layer, the rows of a small tree, and the state that they follow, on a device."""

    net: GatedDeltaNet
    inputs: MixerInputs
    state: LayerState

    @classmethod
    def on(cls, device: torch.device, sizes: DeltaNetSizes, dtype: torch.dtype) -> _Sample:
        def numbers(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return sample_tensor(dtype, *shape).to(device)

        wide, count = torch.float32, len(SAMPLE_PARENTS)
        gates = DeltaGates(-numbers(sizes.heads, dtype=wide).abs(), numbers(sizes.heads, dtype=wide))
        weights = numbers(sizes.kernel, sizes.channels), gates, numbers(sizes.value_size)
        net = GatedDeltaNet(sizes, torch.clone, torch.clone, False, *weights, torch.clone)
        output_gates = numbers(count, sizes.heads, sizes.value_size)
        inputs = MixerInputs(numbers(count, sizes.channels), numbers(count, 2 * sizes.heads), output_gates)
        matrices = numbers(1, sizes.heads, sizes.key_size, sizes.value_size, dtype=wide)
        return cls(net, inputs, LayerState(numbers(sizes.kernel - 1, sizes.channels), matrices))
