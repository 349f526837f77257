"""Rows become bytes and come back the same with kernels and without."""

import ctypes

import pytest
import torch

from specchat.forward import native_ops, quantize
from specchat.forward.native_ops import native_kernels
from specchat.forward.quantize import INT8_MAX, TOLERANCE, ZERO_POINT, dequantize_rows, quantize_rows

DTYPES = [torch.float32, torch.bfloat16]
HALVES = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, INT8_MAX, 0.49999997]])  # a step is worth one here


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    """Nobody has looked for kernels yet."""

    def forget():
        native_kernels.cache_clear()
        quantize._quantize_kernels.cache_clear()

    forget()
    yield lambda: (monkeypatch.setenv(native_ops.ENVIRONMENT_VARIABLE, native_ops.DISABLED), forget())
    forget()


def rows(dtype, count=5, size=77):
    return (torch.randn(count, size, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)


def test_halves_go_to_the_even_number_and_zero_stands_in_the_middle():
    small, scales = quantize_rows(HALVES)

    assert [0, 2, 2, 0, -2, -2, INT8_MAX, 0] == (small.int() - ZERO_POINT)[0].tolist()
    assert [1.0] == scales.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_round_as_torch_does(dtype, afresh):
    given, sums, bias = rows(dtype), rows(torch.float32) * 1e4, rows(dtype, 1)[0]
    given[2], worth = 0, rows(torch.float32, 1, 5)[0]
    if native_kernels().library is None:
        pytest.skip("no C++ compiler here")
    assert quantize._quantize_kernels(dtype) is not None

    def said():
        return [*quantize_rows(given), *(dequantize_rows(sums.clone(), worth, each, dtype) for each in (None, bias))]

    ours = said()
    afresh()
    assert quantize._quantize_kernels(dtype) is None
    theirs = said()

    assert all(torch.equal(our, their) for our, their in zip(ours[:3], theirs[:3], strict=True))
    assert torch.allclose(ours[3], theirs[3], TOLERANCE[dtype], TOLERANCE[dtype])
    assert ours[3].dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_rounded_comes_back_within_half_a_step(dtype):
    given = rows(dtype)
    small, scales = quantize_rows(given)
    back = dequantize_rows((small.float() - ZERO_POINT), scales, None, torch.float32)

    assert bool(((back - given.float()).abs() <= 0.5001 * scales[:, None]).all())


def test_a_row_that_is_nothing_stays_nothing():
    small, scales = quantize_rows(torch.zeros(1, 9))

    assert [ZERO_POINT] * 9 == small[0].tolist()
    assert float(scales) > 0


def test_parts_of_wider_rows_are_read_as_they_lie():
    wide = rows(torch.float32, 4, 90)

    assert torch.equal(quantize_rows(wide[:, :77])[0], quantize_rows(wide[:, :77].clone())[0])


@pytest.mark.parametrize(("name", "out"), [("shrink", 1), ("widen", 3)])
def test_a_kernel_that_rounds_otherwise_is_not_used(name, out, monkeypatch):
    def kernel(found, asked, dtype):
        if asked == name:
            return lambda *arguments: ctypes.memset(arguments[out], 0, 16)
        return true(found, asked, dtype)

    true = native_ops.NativeKernels.kernel
    monkeypatch.setattr(native_ops.NativeKernels, "kernel", kernel)

    assert quantize._quantize_kernels(torch.float32) is None


def test_numbers_that_kernels_do_not_know_are_torchs():
    assert quantize._quantize_kernels(torch.float16) is None
    assert quantize_rows(rows(torch.float16))[0].dtype == torch.uint8
