"""Linear layers of the native kernels: the results of torch, and the same bits in every batch, on every kind of CPU."""

import pytest
import torch
from torch.nn import functional

from specchat.forward.linear import linear as module
from specchat.forward.linear.linear import (
    TOLERANCE,
    FloatLinear,
    NativeLinear,
    OneDnnLinear,
    float_linear,
    linear_kernel,
)
from specchat.forward.native.native_ops import NativeBorderError, NativeKernels, native_kernels
from tests.each_row import each_row
from tests.forward.threads import with_threads

DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [(96, 64), (83, 100), (5, 36), (1, 32)]  # outputs and inputs that are no whole blocks and tiles, too

pytestmark = pytest.mark.usefixtures("native_library")


def random(dtype: torch.dtype, *shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@each_row("dtype", DTYPES)
@each_row("shape", SHAPES)
def test_the_results_are_those_of_torch_and_the_same_in_every_batch(kernels: NativeKernels, shape, dtype):
    weight, bias, rows = random(dtype, *shape), random(dtype, shape[0], seed=2), random(dtype, 130, shape[1], seed=3)
    kernel = linear_kernel(kernels, dtype)
    assert kernel is not None
    for each in (bias, None):
        linear = NativeLinear.pack(weight, each, kernels.lanes, kernel)
        out = linear(rows)

        assert torch.allclose(out, functional.linear(rows, weight, each), TOLERANCE[dtype], TOLERANCE[dtype])
        for count in (1, 2, 3, 7, 16, 17, 33, 64):
            assert torch.equal(linear(rows[:count]), out[:count])
            assert torch.equal(linear(rows[-count:]), out[-count:])


@each_row("rows", [torch.ones(3, 33), torch.ones(3, 31), torch.ones(3, 32).bfloat16()])
def test_rows_of_another_size_or_dtype_are_refused(rows):
    with pytest.raises(NativeBorderError):
        float_linear(torch.ones(5, 32))(rows)


def test_the_number_of_threads_changes_no_bit():
    linear, rows = float_linear(random(torch.bfloat16, 1000, 96)), random(torch.bfloat16, 5, 96)
    results = with_threads(lambda: linear(rows))

    assert all(torch.equal(each, results[0]) for each in results)


def test_rows_in_several_dimensions_keep_them():
    weight, rows = random(torch.float32, 48, 20), random(torch.float32, 2, 3, 20)

    assert torch.allclose(float_linear(weight)(rows), functional.linear(rows, weight), 1e-4, 1e-4)


def test_a_kernel_with_wrong_results_is_not_used(monkeypatch):
    class Broken(NativeKernels):
        def kernel(self, name, dtype):
            return lambda *_arguments: None

    broken = Broken(native_kernels().library)

    assert linear_kernel(broken, torch.float32) is None
    monkeypatch.setattr(module, "native_kernels", lambda: broken)
    assert isinstance(float_linear(random(torch.float32, 16, 32)), OneDnnLinear | FloatLinear)


def test_a_kernel_whose_rows_depend_on_the_batch_is_not_used():
    right = native_kernels().kernel("linear", torch.float32)
    assert right is not None

    class Varying(NativeKernels):
        def kernel(self, name, dtype):
            def multiply(rows, weight, bias, out, count, *sizes):
                right(rows, weight, bias if count > 1 else None, out, count, *sizes)

            return multiply

    assert linear_kernel(Varying(native_kernels().library), torch.float32) is None
