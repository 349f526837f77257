"""A mixture of experts in blocks is one call: the bits of its experts one by one, in every batch."""

import ctypes
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from specchat.forward.fused_ops import AttentionDimensions, select_fused_ops
from specchat.forward.linear.expert_linear import ExpertLinear, RowsByExpert
from specchat.forward.linear.linear import NativeLinear, QuantLinear, float_linear
from specchat.forward.linear.packed_linear import packed_linear
from specchat.forward.llama.moe import MixtureOfExperts, Router, Routing
from specchat.forward.llama.variations import GELU_TANH, SILU, SwiGluClamp
from specchat.forward.native.native_mixture import STRUCTURES
from specchat.forward.native.native_ops import NativeBorderError, native_kernels
from tests.each_row import each_row
from tests.forward.test_packed_linear import stored
from tests.forward.threads import with_threads

pytestmark = pytest.mark.usefixtures("native_library")

SIZE, INNER, EXPERTS, CHOSEN = 256, 512, 7, 3
ROWS = 64


def packed(
    names: tuple[str, ...], outputs: int, inputs: int, seed: int, dtype: torch.dtype, has_bias: bool = False
) -> QuantLinear:
    """A layer with a part of each of these types of blocks."""
    bias = torch.randn(len(names) * outputs, generator=torch.Generator().manual_seed(seed)).to(dtype)
    weights = [stored(name, outputs, seed + index, inputs)[0] for index, name in enumerate(names)]
    layer = packed_linear(weights, dtype, bias if has_bias else None)
    assert layer is not None
    return layer


def mixture_of(
    dtype: torch.dtype, router_dtype: torch.dtype | None = None, down: str = "Q6_K", has_bias: bool = False
) -> MixtureOfExperts:
    router_dtype = router_dtype or dtype
    weight = torch.randn(EXPERTS, SIZE, generator=torch.Generator().manual_seed(5)).to(router_dtype)
    gate_ups = [packed(("Q4_K", "Q4_K"), INNER, SIZE, 10 * each, dtype, has_bias) for each in range(EXPERTS)]
    downs = [packed((down,), SIZE, INNER, 10 * each + 5, dtype, has_bias) for each in range(EXPERTS)]
    router = Router(float_linear(weight), router_dtype, Routing(CHOSEN))
    return MixtureOfExperts(router, ExpertLinear(tuple(gate_ups)), ExpertLinear(tuple(downs)))


def rows_of(dtype: torch.dtype, count: int = ROWS) -> Tensor:
    rows = torch.randn(count, SIZE, generator=torch.Generator().manual_seed(3))
    rows[:, 7] *= 20  # an outlier
    return rows.to(dtype)


def one_by_one(mixture: MixtureOfExperts, rows: Tensor) -> Tensor:
    """With the choice of torch, and a call for each expert."""
    return mixture.sum_of_experts(rows, select_fused_ops(AttentionDimensions(1, 1, 2, 1e-6), rows[:0]))


@each_row("has_bias", [False, True])
@each_row(
    "dtype, router_dtype",
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
    ],
)
def test_one_call_computes_what_the_experts_compute_one_by_one(dtype, router_dtype, has_bias):
    mixture, rows = mixture_of(dtype, router_dtype, has_bias=has_bias), rows_of(dtype)

    ours, expected = mixture.native[dtype](rows), one_by_one(mixture, rows)

    tolerance = 1e-6 if dtype == torch.float32 else 1e-3  # the softmax of torch is another
    assert (ours.float() - expected.float()).norm() < tolerance * expected.float().norm()


@each_row("is_normalized", [True, False])
@each_row("activation", [SILU, GELU_TANH])
def test_the_rules_of_a_family_hold_in_one_call(is_normalized, activation):
    mixture = mixture_of(torch.float32)
    routing = replace(mixture.router.routing, is_topk_normalized=is_normalized)
    mixture = replace(mixture, router=replace(mixture.router, routing=routing), activation=activation)
    rows = rows_of(torch.float32, 5)

    ours, expected = mixture.native[torch.float32](rows), one_by_one(mixture, rows)

    assert (ours - expected).norm() < 1e-6 * expected.norm()


@each_row("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_in_every_batch_and_for_every_number_of_threads(dtype):
    mixture, rows = mixture_of(dtype), rows_of(dtype)
    together = mixture.native[dtype](rows)

    for first, last in ((0, 1), (3, 5), (8, 24), (0, ROWS)):
        for ours in with_threads(partial(mixture.native[dtype], rows[first:last])):
            assert torch.equal(ours, together[first:last])


def test_experts_of_equal_scores_are_the_first_ones_and_those_of_no_number_are_distinct():
    mixture = mixture_of(torch.float32)
    assert isinstance(mixture.router.linear, NativeLinear)
    mixture.router.linear.weight.zero_()
    rows = rows_of(torch.float32, 2)
    first = torch.arange(CHOSEN).expand(2, -1)
    by_expert = RowsByExpert.sort(first)

    gate_up = mixture.gate_up_proj(by_expert.gather(rows), by_expert)
    inner = torch.nn.functional.silu(gate_up[:, :INNER]) * gate_up[:, INNER:]
    expected = by_expert.scatter(mixture.down_proj(inner, by_expert)).mean(dim=1)

    native = mixture.native[torch.float32]
    assert (native(rows) - expected).norm() < 1e-3 * expected.norm()  # another SwiGLU, rounded to 8 bits
    assert native(torch.full_like(rows, float("nan"))).isnan().all()


def test_other_parts_are_computed_one_by_one():
    class OtherRouting(Routing):
        pass

    mixture = mixture_of(torch.bfloat16)
    router, other = mixture.router, packed(("Q8_0",), SIZE, INNER + 32, 1, torch.bfloat16)

    assert {torch.bfloat16} == set(mixture.native)
    for different in (
        replace(mixture, activation=SwiGluClamp(1.7, 7.0)),
        replace(mixture, router=replace(router, routing=OtherRouting(CHOSEN))),
        replace(mixture, router=replace(router, routing=Routing(EXPERTS + 1))),
        replace(mixture, down_proj=ExpertLinear((*mixture.down_proj.experts[1:], other))),
        replace(mixture, down_proj=ExpertLinear(mixture.down_proj.experts[1:])),
        replace(mixture, gate_up_proj=ExpertLinear((float_linear(torch.randn(8, 8)),) * EXPERTS)),
    ):
        assert not different.native


def test_rows_of_another_size_or_dtype_are_not_read():
    mixture = mixture_of(torch.bfloat16)

    with pytest.raises(NativeBorderError):
        mixture.native[torch.bfloat16](rows_of(torch.bfloat16)[:, :-32])


def test_python_and_the_kernel_have_structures_of_the_same_size():
    sizes = [native_kernels().call("mixture_bytes", index) for index in range(len(STRUCTURES))]

    assert [ctypes.sizeof(each) for each in STRUCTURES] == sizes
