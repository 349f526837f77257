"""Triton's interpreter as a GPU would compute: kernels run on the CPU, program by program, with hardware's rounding.

The interpreter of Triton 3.9 truncates to bfloat16, and multiplies the bits of bfloat16 matrices as integers. Here
floats are rounded to the nearest, and a matrix product adds exact products in steps of 16 in float32, as tensor cores
do. Takes tensors of the fake GPU, counts launches there, and lets its graphs replay them. Knows no kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import numpy
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice
from triton.runtime import interpreter

from tests.fake_gpu import FakeGpu, GpuTensor, MixedDevicesError

IS_INTERPRETED = bool(triton.knobs.runtime.interpret)
DEVICE = torch.device("cpu" if IS_INTERPRETED else "cuda")
DOT_STEP = 16  # inputs that a tensor core adds at once

_convert_float = interpreter._convert_float
_run_grid = interpreter.GridExecutor.__call__
_patch_language = interpreter._patch_lang
_patched = set[tuple[str, ...]]()  # modules of Triton's language, while a grid runs


def _floats(bits: numpy.ndarray) -> numpy.ndarray:
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def _converted(numbers: Any, source: Any, target: Any, rounding: Any) -> Any:
    if (source, target) == (tl.bfloat16, tl.float32):
        return _floats(numbers).view(numpy.uint32)
    if (source, target) != (tl.float32, tl.bfloat16):
        return _convert_float(numbers, source, target, rounding)
    bits = numpy.ascontiguousarray(numbers).view(numpy.uint32)
    rounded = (bits + numpy.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return numpy.where(numpy.isnan(numbers), 0x7FC0, rounded).astype(numpy.uint16)


def _dot(_builder: Any, one: Any, other: Any, total: Any, _precision: Any, _imprecise: Any) -> Any:
    left, right = (
        (_floats(each.data) if each.dtype.scalar == tl.bfloat16 else each.data).astype(numpy.float64)
        for each in (one, other)
    )
    result = total.data
    for first in range(0, left.shape[1], DOT_STEP):
        step = slice(first, first + DOT_STEP)
        result = (result + left[:, step] @ right[step]).astype(total.data.dtype)
    return interpreter.TensorHandle(result, total.dtype.scalar)


def _elementwise(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """A function of CUDA's library, which the interpreter lacks, with the bits of torch on a CPU."""

    def compute(numbers: Any) -> Any:
        result = function(torch.from_numpy(numpy.ascontiguousarray(numbers.handle.data))).numpy()
        return tl.core.tensor(interpreter.TensorHandle(result, numbers.dtype.scalar), numbers.type)

    return compute


def _patch_language_once(function: Any) -> Any:
    """Without this, the interpreter exchanges all of Triton's language at every call in a kernel: half of its time."""
    modules = tuple(name for name, value in function.__globals__.items() if value in (tl, tl.core))
    if modules in _patched:
        return interpreter._LangPatchScope()
    _patched.add(modules)
    return _patch_language(function)


def _run(grid: Any, *arguments: Any, **constants: Any) -> None:
    inner = [each.inner if isinstance(each, GpuTensor) else each for each in arguments]

    def compute(*tensors: Any) -> None:
        _patched.clear()
        with numpy.errstate(all="ignore"):
            _run_grid(grid, *tensors, **constants)

    if on_gpus := {each.device for each in arguments if isinstance(each, GpuTensor)}:
        if on_gpus != {selected := FakeGpu.current().device}:
            raise MixedDevicesError(f"a kernel on tensors of {on_gpus}, while {selected} is selected")
        FakeGpu.current().launch(compute, inner, {}, None)
    else:
        compute(*inner)


@contextlib.contextmanager
def interpreted_kernels() -> Generator[None]:
    """Kernels run by the interpreter where there is no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if IS_INTERPRETED:
            patch.setattr(interpreter, "_convert_float", _converted)
            patch.setattr(interpreter.InterpreterBuilder, "create_dot", _dot)
            patch.setattr(interpreter, "_patch_lang", _patch_language_once)
            patch.setattr(interpreter.GridExecutor, "__call__", _run)
            patch.setattr(libdevice, "log", _elementwise(torch.log))
            patch.setattr(libdevice, "log1p", _elementwise(torch.log1p))
        yield
