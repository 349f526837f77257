"""Experts on a GPU: the product of each row with those that it chose, without the host, alike in every batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.forward.cuda import triton_experts
from specchat.forward.cuda.triton_blocks import block_product
from specchat.forward.cuda.triton_experts import ExpertPairs
from specchat.forward.cuda.triton_linear import FEW_ROWS, float_product, packed_product
from specchat.forward.linear import expert_linear
from specchat.forward.linear.block_linear import BLOCK_TYPES, BlockLinear, BlockWeight
from specchat.forward.linear.byte_linear import ByteLinear, ByteWeight
from specchat.forward.linear.expert_linear import ExpertLinear, RowsByExpert
from specchat.forward.linear.int4_linear import Int4Linear, Int4Weight
from specchat.forward.linear.linear import FloatLinear, QuantLinear
from tests.each_row import each_row
from tests.forward.test_triton_blocks import stored
from tests.triton_interpreter import DEVICE, interpreted_kernels

TOLERANCE = {torch.float32: 1e-5, torch.float16: 0.003, torch.bfloat16: 0.015}
EXPERTS, OUTPUTS = 5, 40
LAYOUTS = ("float", "int8", "fp8", "int4", "Q4_K and Q6_K", *BLOCK_TYPES)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU that multiplies as a GPU does, if there is none."""
    monkeypatch.setattr(expert_linear, "triton_module", lambda *_: triton_experts)
    with interpreted_kernels():
        expert_linear.tried_layouts.clear()
        yield
        expert_linear.tried_layouts.clear()


def layer(layout: str, inputs: int, dtype: torch.dtype, seed: int, *, has_bias: bool = True) -> QuantLinear:
    random = torch.Generator().manual_seed(seed)
    noise = partial(torch.randn, generator=random)
    bias = noise(OUTPUTS).to(DEVICE, dtype) if has_bias else None
    if layout == "float":
        return FloatLinear((noise(OUTPUTS, inputs) / inputs**0.5).to(DEVICE, dtype), bias)
    if layout in ("int8", "fp8"):
        numbers = (noise(OUTPUTS, inputs) * 30).to(torch.int8 if layout == "int8" else torch.float8_e4m3fn)
        scales = torch.rand(OUTPUTS, generator=random).add_(0.5) / 300
        return ByteLinear(ByteWeight.pack(numbers.to(DEVICE), scales.to(DEVICE)), bias, packed_product)
    if layout == "int4":
        numbers, zeros = (
            torch.randint(16, size, generator=random).byte() for size in ((OUTPUTS, inputs), (inputs // 32, OUTPUTS))
        )
        scales = torch.rand(inputs // 32, OUTPUTS, generator=random).half() / 32
        return Int4Linear(Int4Weight.pack(numbers, zeros, scales, 32).to(DEVICE), bias, packed_product)
    parts = layout.split(" and ")
    heights = (24, OUTPUTS - 24) if len(parts) > 1 else (OUTPUTS,)
    weights = [
        BlockWeight.pack([stored(each, height, inputs, seed)], DEVICE)
        for each, height in zip(parts, heights, strict=True)
    ]
    return BlockLinear(tuple(weights), bias, block_product)


def floats(linear: QuantLinear) -> torch.Tensor:
    if isinstance(linear, FloatLinear):
        return linear.weight.double()
    weights = linear.parts if isinstance(linear, BlockLinear) else [linear.weight]  # type: ignore[attr-defined]
    return torch.cat([each.dequantized(torch.float32) for each in weights]).double()


def experts(layout: str, inputs: int, dtype: torch.dtype, *, has_bias: bool = True) -> ExpertLinear:
    layers = (layer(layout, inputs, dtype, seed, has_bias=has_bias) for seed in range(EXPERTS))
    return ExpertLinear.of(layers, EXPERTS, dtype, DEVICE)


def choice(rows: int, choices: int = 3) -> torch.Tensor:
    random = torch.Generator().manual_seed(rows)
    return torch.stack([torch.randperm(EXPERTS, generator=random)[:choices] for _ in range(rows)]).to(DEVICE)


def rows_of(dtype: torch.dtype, count: int, inputs: int) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(2)).to(dtype).to(DEVICE)


def check(layout: str, inputs: int, dtype: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_experts, "are_right", lambda *_: True)
    linear, rows, chosen = experts(layout, inputs, dtype), rows_of(dtype, count, inputs), choice(count)
    assert linear.stack is not None
    pairs = ExpertPairs.sort(chosen)

    outputs = pairs.scatter(linear(pairs.gather(rows), pairs)).double().cpu()

    weights = torch.stack([floats(each) for each in linear.experts])[chosen.flatten()].unflatten(0, chosen.shape).cpu()
    biases = torch.stack([each.bias for each in linear.experts])[chosen].double().cpu()  # type: ignore[attr-defined]
    expected = torch.einsum("ni,ncoi->nco", rows.double().cpu(), weights) + biases
    assert (outputs - expected).norm() <= TOLERANCE[dtype] * expected.norm()


@each_row("layout", LAYOUTS, shares=4)
def test_each_row_is_multiplied_with_the_experts_that_it_chose(layout, monkeypatch):
    check(layout, 256, torch.float32, 3, monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 21, FEW_ROWS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_so_for_passes_of_every_size(layout, count, dtype, monkeypatch):
    check(layout, 1024, dtype, count, monkeypatch)


@pytest.mark.full
@each_row("layout", ["float", "int8", "int4", "Q4_0", "MXFP4"])
def test_inputs_may_end_before_the_last_block(layout, monkeypatch):
    check(layout, 160, torch.bfloat16, 4, monkeypatch)


def test_pairs_of_an_expert_share_tiles_of_sixteen():
    chosen = torch.tensor([[2, 0]] * 17 + [[1, 2]], device=DEVICE)

    tiles = ExpertPairs.sort(chosen).tiles.cpu()

    used = [(tile[0], [pair for pair in tile[1:] if pair < 36]) for tile in tiles.tolist() if tile[0] >= 0]
    first, second = [*range(0, 34, 2), 35], list(range(1, 34, 2))
    assert used == [(2, first[:16]), (0, second[:16]), (2, first[16:]), (0, second[16:]), (1, [34])]


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [("MXFP4", torch.bfloat16), *(pytest.param(each, torch.bfloat16, marks=pytest.mark.full) for each in LAYOUTS)],
)
def test_a_row_has_the_same_bits_in_every_batch(layout, dtype, monkeypatch):
    monkeypatch.setattr(triton_experts, "are_right", lambda *_: True)
    linear, rows, chosen = experts(layout, 1024, dtype), rows_of(dtype, 33, 1024), choice(33)

    def outputs(first: int, count: int) -> torch.Tensor:
        pairs = ExpertPairs.sort(chosen[first : first + count])
        parts = linear(pairs.gather(rows[first : first + count]), pairs)
        return pairs.weighted_sum(parts, torch.full((count, 3), 0.3, device=DEVICE))

    together = outputs(0, 33)
    for first, count in ((0, 1), (32, 1), (5, 7), (3, 17)):
        assert torch.equal(outputs(first, count), together[first : first + count])


def test_the_weighted_sum_is_that_of_the_host():
    """In the order of the choices, rounded once."""
    chosen, parts = choice(4), rows_of(torch.bfloat16, 12, 700)
    weights = torch.rand(4, 3, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    by_expert = RowsByExpert.sort(chosen)
    in_order = parts if by_expert.order is None else parts[by_expert.order]

    assert torch.equal(by_expert.weighted_sum(in_order, weights), ExpertPairs.sort(chosen).weighted_sum(parts, weights))


def test_passes_over_many_rows_take_the_layers_one_by_one(monkeypatch):
    monkeypatch.setattr(triton_experts, "are_right", lambda *_: True)
    linear = experts("float", 32, torch.float32)

    assert isinstance(linear.sort(choice(FEW_ROWS)), ExpertPairs)
    assert isinstance(linear.sort(choice(FEW_ROWS + 1)), RowsByExpert)
    assert all(
        each.weight.data_ptr() == linear.stack.weight[place].data_ptr() for place, each in enumerate(linear.experts)
    )  # type: ignore[union-attr]


@each_row("layout", ["int8", "Q4_K and Q6_K"])
def test_the_trial_at_load_passes(layout):
    assert experts(layout, 256, torch.float32).stack is not None


@each_row("fault", [lambda out: out * 1.2, lambda out: out + len(out) * 1e-3])
def test_wrong_kernels_are_not_used(fault, monkeypatch, caplog):
    right = ExpertPairs.product
    monkeypatch.setattr(ExpertPairs, "product", lambda *arguments: fault(right(*arguments)))

    linear = experts("float", 32, torch.float32)

    assert linear.stack is None and len(linear.experts) == EXPERTS
    assert "kernels for experts give other results" in caplog.text


def test_experts_that_differ_are_not_stacked():
    layers = [layer("float", 32, torch.float32, 1), layer("float", 32, torch.float32, 1, has_bias=False)]

    linear = ExpertLinear.of(iter(layers), 2, torch.float32, DEVICE)

    assert linear.stack is None
    assert torch.equal(linear.experts[1].weight, layers[1].weight)  # type: ignore[attr-defined]


def test_rows_of_floats_are_near_those_of_torch(monkeypatch):
    monkeypatch.setattr(triton_experts, "are_right", lambda *_: True)
    linear, rows, chosen = experts("float", 96, torch.float32, has_bias=False), rows_of(torch.float32, 2, 96), choice(2)
    pairs = ExpertPairs.sort(chosen)

    ours = pairs.scatter(linear(rows, pairs))

    for row in range(2):
        for place, expert in enumerate(chosen[row].tolist()):
            expected = functional.linear(rows[row], linear.experts[expert].weight)  # type: ignore[attr-defined]
            assert torch.allclose(ours[row, place], expected, atol=1e-4)


def test_a_router_is_multiplied_alike_in_every_batch():
    weight, bias = rows_of(torch.bfloat16, 40, 200) / 14, rows_of(torch.bfloat16, 1, 40)[0]
    rows = rows_of(torch.bfloat16, 70, 200)
    together = float_product(rows, weight, bias)

    expected = functional.linear(rows.double(), weight.double(), bias.double())
    assert (together.double() - expected).norm() <= 0.01 * expected.norm()
    for first, count in ((0, 1), (69, 1), (5, 17), (3, 40)):
        assert torch.equal(float_product(rows[first : first + count], weight, bias), together[first : first + count])
