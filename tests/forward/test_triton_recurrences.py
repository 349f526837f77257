"""The Triton kernels of recurrent layers: the numbers of float64, and the bits of a row alone in every tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.forward.cuda import triton_recurrences
from specchat.forward.cuda.device_states import DevicePass, DeviceStates, can_step
from specchat.forward.llama.gated_delta_net import DeltaNetSizes, GatedDeltaNet, LayerState, MixerInputs
from specchat.forward.recurrences import DeltaGates
from tests.each_row import each_row
from tests.triton_interpreter import DEVICE, interpreted_kernels

EPSILON = 1e-6
TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.06}
SIZES = [DeltaNetSizes(2, 4, 12, 20, 4), DeltaNetSizes(1, 1, 16, 8, 2)]
TREE = [-1, 0, 0, 1, 2, 2, 5, -2]  # parents; the last node is padding
PATHS = [[0, 1, 3], [0, 2, 4], [0, 2, 5, 6]]


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    can_step.cache_clear()
    with interpreted_kernels():
        yield
    can_step.cache_clear()


def random(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


@dataclass(frozen=True)
class Layer:
    net: GatedDeltaNet
    inputs: MixerInputs
    start: LayerState

    @classmethod
    def of(cls, sizes: DeltaNetSizes, dtype: torch.dtype, count: int) -> Layer:
        gates = DeltaGates(-random(1, sizes.heads).abs(), random(2, sizes.heads))
        convolution, norm = (
            random(3, sizes.kernel, sizes.channels, dtype=dtype),
            random(4, sizes.value_size, dtype=dtype),
        )
        net = GatedDeltaNet(sizes, torch.clone, torch.clone, False, convolution, gates, norm, torch.clone)
        wide = random(5, count, sizes.channels + sizes.values, dtype=dtype)  # as one product computes both
        columns, output_gates = wide.split((sizes.channels, sizes.values), dim=1)
        inputs = MixerInputs(
            columns, random(6, count, 2 * sizes.heads, dtype=dtype), output_gates.view(count, sizes.heads, -1)
        )
        matrices = random(7, 1, sizes.heads, sizes.key_size, sizes.value_size)
        return cls(net, inputs, LayerState(random(8, sizes.kernel - 1, sizes.channels, dtype=dtype), matrices))

    def states(self) -> DeviceStates:
        states = DeviceStates({0: self.net}, self.net.norm)
        states.layers[0].copy_from(self.start)
        return states

    def rows(self, path: Sequence[int]) -> MixerInputs:
        return MixerInputs(*(each[list(path)] for each in vars(self.inputs).values()))

    def mix(self, states: DeviceStates, ancestors: list[int], path: Sequence[int]) -> Tensor:
        return DevicePass(states, torch.tensor(ancestors, device=DEVICE)).mix(self.net, 0, self.rows(path), EPSILON)

    def chain(self, states: DeviceStates, path: Sequence[int], after: LayerState) -> Tensor:
        return DevicePass(states, None, {0: after}).mix(self.net, 0, self.rows(path), EPSILON)


def path_to(node: int) -> list[int]:
    return [*(path_to(TREE[node]) if TREE[node] >= 0 else []), node]


def ancestors_of_tree() -> list[int]:
    return [sum(1 << each for each in path_to(node)) for node in range(len(TREE))]


def in_float64(layer: Layer, path: Sequence[int]) -> Tensor:
    """The output of the last row of a path, by the formula."""
    sizes, net, wide = layer.net.sizes, layer.net, torch.float64
    inputs = MixerInputs(*(each.to(wide) for each in vars(layer.rows(path)).values()))
    history, weight = torch.cat((layer.start.columns.to(wide), inputs.columns)), net.convolution.to(wide)
    state, output = layer.start.matrices[0].to(wide), torch.empty(0)
    for row in range(len(path)):
        convolved = torch.nn.functional.silu((history[row : row + sizes.kernel] * weight).sum(0))
        query, key, value = convolved.split((sizes.keys, sizes.keys, sizes.values))
        query, key = (
            (each / (each.square().sum(-1, keepdim=True) + EPSILON).sqrt()).repeat_interleave(
                sizes.heads // sizes.key_heads, 0
            )
            for each in (query.view(sizes.key_heads, -1), key.view(sizes.key_heads, -1))
        )
        beta, step = inputs.projected[row].chunk(2)
        decay = net.gates.rates.to(wide) * torch.nn.functional.softplus(step + net.gates.biases)
        state = state * decay.exp()[:, None, None]
        change = (value.view(sizes.heads, -1) - torch.einsum("hkv,hk->hv", state, key)) * beta.sigmoid()[:, None]
        state = state + key[:, :, None] * change[:, None]
        output = torch.einsum("hkv,hk->hv", state, query) * sizes.key_size**-0.5
    normed = output * (output.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * net.norm.to(wide)
    return normed * torch.nn.functional.silu(inputs.output_gates[-1])


@each_row("dtype", TOLERANCE)
@each_row("sizes", SIZES)
def test_every_node_of_a_tree_has_the_numbers_of_its_path_in_float64(dtype, sizes):
    layer = Layer.of(sizes, dtype, len(TREE))

    outputs = layer.mix(layer.states(), ancestors_of_tree(), range(len(TREE)))

    for node in range(len(TREE) - 1):
        expected = in_float64(layer, path_to(node)).to(dtype)
        torch.testing.assert_close(outputs[node], expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert not outputs[-1].any(), "padding is computed"


@each_row("dtype", [torch.float32, torch.bfloat16])
@each_row("path", PATHS)
def test_a_node_has_the_bits_of_decoding_its_path_one_row_at_a_time(dtype, path):
    layer, states = Layer.of(SIZES[0], dtype, len(TREE)), Layer.of(SIZES[0], dtype, len(TREE)).states()
    before = states.layers[0].copy(DEVICE)
    together = layer.mix(states, ancestors_of_tree(), range(len(TREE)))
    assert torch.equal(before.matrices, states.layers[0].matrices)  # a pass changes no state
    assert torch.equal(before.columns, states.layers[0].columns)
    states.apply(path)

    stepped = layer.states()
    for node in path:
        assert torch.equal(layer.mix(stepped, [1], [node])[0], together[node])
        stepped.apply([0])
    chain, after = layer.states(), before.copy(DEVICE)

    assert torch.equal(layer.chain(chain, path, after), together[path])
    for state in (states.layers[0], after):
        assert torch.equal(state.matrices, stepped.layers[0].matrices)
        assert torch.equal(state.columns, stepped.layers[0].columns)


def test_rows_that_were_put_aside_are_applied_as_if_they_had_stayed():
    layer = Layer.of(SIZES[0], torch.float32, len(TREE))
    stayed, moved = layer.states(), layer.states()
    for states in (stayed, moved):
        layer.mix(states, ancestors_of_tree(), range(len(TREE)))
    aside = moved.copy_recording(len(TREE))
    layer.mix(moved, [1], [5])

    moved.restore_recording(aside)
    for states in (stayed, moved):
        states.apply(PATHS[2])

    assert torch.equal(stayed.layers[0].matrices, moved.layers[0].matrices)
    assert torch.equal(stayed.layers[0].columns, moved.layers[0].columns)


def test_kernels_are_used_where_they_have_the_numbers_of_torch_and_the_bits_of_a_row_alone(monkeypatch, caplog):
    assert can_step(SIZES[0], torch.bfloat16, DEVICE)
    can_step.cache_clear()
    right = triton_recurrences.step_tree
    monkeypatch.setattr(triton_recurrences, "step_tree", lambda *all_: right(*all_) * (1 + 1e-6 * len(all_[3])))

    assert not can_step(SIZES[0], torch.float32, DEVICE)
    assert "Triton kernels of recurrences give other results" in caplog.text
