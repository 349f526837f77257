"""Quantization and dequantization of rows have the same results with native kernels and with torch."""

import ctypes

import pytest
import torch

from specchat.forward import native_ops, quantize
from specchat.forward.native_ops import native_kernels
from specchat.forward.quantize import INT8_MAX, TOLERANCE, ZERO_POINT, dequantize_rows, quantize_rows

DTYPES = [torch.float32, torch.bfloat16]
HALVES = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, INT8_MAX, 0.49999997]])  # the scale is 1


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch):
    """Starts without loaded kernels; returns a function that disables them."""

    def forget():
        native_kernels.cache_clear()
        quantize._quantize_kernels.cache_clear()

    forget()
    yield lambda: (monkeypatch.setenv(native_ops.ENVIRONMENT_VARIABLE, native_ops.DISABLED), forget())
    forget()


def rows(dtype, count=5, size=77):
    return (torch.randn(count, size, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)


def test_halves_are_rounded_to_even_and_zero_is_the_zero_point():
    quantized, scales = quantize_rows(HALVES)

    assert [0, 2, 2, 0, -2, -2, INT8_MAX, 0] == (quantized.int() - ZERO_POINT)[0].tolist()
    assert [1.0] == scales.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_round_as_torch(dtype, without_kernels):
    inputs, sums, bias = rows(dtype), rows(torch.float32) * 1e4, rows(dtype, 1)[0]
    inputs[2], scales = 0, rows(torch.float32, 1, 5)[0]
    if native_kernels().library is None:
        pytest.skip("no C++ compiler here")
    assert quantize._quantize_kernels(dtype) is not None

    def results():
        dequantized = [dequantize_rows(sums.clone(), scales, each, dtype) for each in (None, bias)]
        return [*quantize_rows(inputs), *dequantized]

    ours = results()
    without_kernels()
    assert quantize._quantize_kernels(dtype) is None
    theirs = results()

    assert all(torch.equal(our, their) for our, their in zip(ours[:3], theirs[:3], strict=True))
    assert torch.allclose(ours[3], theirs[3], TOLERANCE[dtype], TOLERANCE[dtype])
    assert ours[3].dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_quantization_error_is_at_most_half_a_step(dtype):
    inputs = rows(dtype)
    quantized, scales = quantize_rows(inputs)
    restored = dequantize_rows((quantized.float() - ZERO_POINT), scales, None, torch.float32)

    assert bool(((restored - inputs.float()).abs() <= 0.5001 * scales[:, None]).all())


def test_a_row_of_zeros_stays_zero():
    quantized, scales = quantize_rows(torch.zeros(1, 9))

    assert [ZERO_POINT] * 9 == quantized[0].tolist()
    assert float(scales) > 0


def test_rows_may_have_a_stride():
    wide = rows(torch.float32, 4, 90)

    assert torch.equal(quantize_rows(wide[:, :77])[0], quantize_rows(wide[:, :77].clone())[0])


@pytest.mark.parametrize(("name", "out"), [("quantize", 1), ("dequantize", 3)])
def test_a_kernel_with_other_rounding_is_not_used(name, out, monkeypatch):
    def kernel(native, requested, dtype):
        if requested == name:
            return lambda *arguments: ctypes.memset(arguments[out], 0, 16)
        return original(native, requested, dtype)

    original = native_ops.NativeKernels.kernel
    monkeypatch.setattr(native_ops.NativeKernels, "kernel", kernel)

    assert quantize._quantize_kernels(torch.float32) is None


def test_unsupported_dtypes_use_torch():
    assert quantize._quantize_kernels(torch.float16) is None
    assert quantize_rows(rows(torch.float16))[0].dtype == torch.uint8
