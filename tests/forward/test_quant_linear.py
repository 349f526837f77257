"""Every quantization format multiplies with nearly the same numbers, and reports its memory."""

import sys

import pytest
import torch
from torch.nn import functional

from specchat.errors import ModelError
from specchat.forward.linear import linear, packed_linear
from specchat.forward.linear import quant_linear as module
from specchat.forward.linear.linear import WeightSource
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.linear.quant_linear import (
    BLOCKS_OF_8_BITS,
    FP8,
    QUANT_FORMATS,
    DequantizedLinear,
    Nf4DequantizedLinear,
    Nf4PackedLinear,
    hardware_warning,
    quant_linear,
)
from specchat.forward.native.native_ops import NativeKernels
from specchat.profile.keys import WEIGHT_CHOICES
from tests.each_row import each_row

CPU = torch.device("cpu")
TOLERANCE = {
    "float": 0.005,
    "gguf": 0.005,
    "q8_0": 0.02,
    "int8": 0.03,
    "fp8": 0.05,
    "nf4": 0.15,
    "nf4-double": 0.15,
}  # relative error
SIZES = {"int8": 0.6, "fp8": 0.6, "nf4": 0.35, "nf4-double": 0.35}  # of bfloat16


def weight(outputs, inputs, dtype=torch.bfloat16):
    torch.manual_seed(outputs + inputs)
    return torch.randn(outputs, inputs, dtype=dtype)


def relative_error(output, expected):
    return float((output.float() - expected).norm() / expected.norm())


@pytest.fixture
def no_kernels(monkeypatch):
    monkeypatch.setattr(packed_linear, "native_kernels", lambda: NativeKernels(None, "none here"))


def test_a_profile_can_name_every_format():
    assert ("auto", *QUANT_FORMATS) == (*WEIGHT_CHOICES, BLOCKS_OF_8_BITS)  # heads alone have the last one


@each_row("dtype", [torch.float32, torch.bfloat16])
@each_row("quant_format", QUANT_FORMATS)
@each_row("shape", [(7, 13), (50, 80), (48, 80), (72, 64), (264, 288), (130, 192)], shares=6)
def test_every_format_is_near_the_float_result(shape, quant_format, dtype):
    matrix, bias, rows = weight(*shape, dtype), weight(1, shape[0], dtype)[0], weight(33, shape[1], dtype)
    before = matrix.clone()

    multiply = quant_linear(WeightSource.from_tensor(matrix), quant_format, bias)

    assert torch.equal(before, matrix)
    for count in (1, 3, 33):
        expected = functional.linear(rows[:count].float(), matrix.float(), bias.float())
        output = multiply(rows[:count])
        assert output.dtype == dtype
        assert relative_error(output, expected) < TOLERANCE[quant_format]


@each_row("quant_format", SIZES)
def test_quantized_weights_take_less_memory(quant_format):
    matrix = weight(512, 256)

    assert (
        quant_linear(WeightSource.from_tensor(matrix), quant_format).bytes
        < SIZES[quant_format] * quant_linear(WeightSource.from_tensor(matrix), "float").bytes
    )


@each_row("quant_format", QUANT_FORMATS)
def test_a_weight_that_is_read_in_chunks_is_the_same(quant_format, monkeypatch):
    matrix, rows = weight(200, 64), weight(4, 64)
    whole = quant_linear(WeightSource.from_tensor(matrix), quant_format)(rows)

    monkeypatch.setattr(linear, "CHUNK_ELEMENTS", 64 * 64)

    assert len(list(WeightSource.from_tensor(matrix).row_chunks())) == 4
    assert torch.equal(quant_linear(WeightSource.from_tensor(matrix), quant_format)(rows), whole)


@each_row("quant_format", SIZES)
def test_zeros_stay_zeros(quant_format):
    multiply = quant_linear(WeightSource.from_tensor(torch.zeros(64, 64)), quant_format)

    assert torch.equal(multiply(torch.zeros(2, 64)), torch.zeros(2, 64))
    assert torch.equal(multiply(torch.ones(2, 64)), torch.zeros(2, 64))


def test_rows_that_are_not_whole_blocks_stay_float_in_nf4():
    matrix, rows = weight(64, 80), weight(3, 80)

    assert torch.equal(
        quant_linear(WeightSource.from_tensor(matrix), "nf4")(rows),
        quant_linear(WeightSource.from_tensor(matrix), "float")(rows),
    )


@each_row("shape", [(64, 72), (72, 64)])
def test_shapes_that_are_not_multiples_of_16_stay_float_in_fp8(shape):
    matrix, rows = weight(*shape), weight(3, shape[1])

    assert torch.equal(
        quant_linear(WeightSource.from_tensor(matrix), "fp8")(rows),
        quant_linear(WeightSource.from_tensor(matrix), "float")(rows),
    )


def test_numbers_that_fp8_can_represent_are_exact():
    """Rows with the absolute maximum 448 have the scale 1."""
    matrix = torch.tensor([448.0, -0.5, 3.25, 0.0] * 4).repeat(16, 1) * torch.tensor([1.0, 8.0] * 8)[:, None]

    multiply = quant_linear(WeightSource.from_tensor(matrix), "fp8")

    assert torch.equal(multiply.weight.float() * multiply.scales[:, None], matrix)
    assert multiply.scales.tolist() == [1, 8] * 8
    assert torch.equal(multiply(matrix[:3]), matrix[:3] @ matrix.T)


@each_row("dtype", [torch.float32, torch.bfloat16])
def test_every_fp8_number_is_upcast_exactly(dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(FP8)
    numbers = codes[~codes.float().isnan()]

    assert len(numbers) == 254
    assert torch.equal(module._upcast(numbers, dtype), numbers.to(dtype))


@each_row("device", ["cpu", "cuda"])
def test_a_device_without_a_kernel_for_fp8_dequantizes(device, monkeypatch):
    matrix, bias, rows = weight(64, 128), weight(1, 64)[0], weight(5, 128)
    monkeypatch.setattr(module, "triton_module", lambda *_: None)

    multiply = quant_linear(WeightSource.from_tensor(matrix), "fp8", bias)

    assert isinstance(multiply, DequantizedLinear)
    assert multiply.weight.dtype == FP8
    assert (
        relative_error(multiply(rows), functional.linear(rows.float(), matrix.float(), bias.float())) < TOLERANCE["fp8"]
    )
    assert "dequantized in every pass" in hardware_warning("fp8", torch.device(device))


def test_nf4_codes_are_those_of_bitsandbytes():
    matrix = weight(96, 64, torch.float32)
    code = module._bitsandbytes().functional.get_4bit_type("nf4", device="cpu")
    expected, state = module._bitsandbytes().functional.quantize_4bit(matrix, blocksize=32, quant_type="nf4")

    codes, absmax = module._quantize_nf4(matrix.view(-1, 32), code)

    assert torch.equal(expected, codes)
    assert torch.equal(state.absmax, absmax)


@pytest.mark.parametrize("quant_format", ["float", "int8", "nf4"])
def test_a_row_has_the_same_bits_in_every_batch(quant_format):
    linear, rows = quant_linear(WeightSource.from_tensor(weight(104, 192)), quant_format), weight(128, 192)
    if not linear.is_batch_invariant:
        pytest.skip(f"{type(linear).__name__}: no kernel for this CPU")
    expected = linear(rows)

    for count in (1, 2, 3, 5, 8, 16, 17, 33, 64, 127):
        for first in range(0, 128 - count + 1, count):
            assert torch.equal(linear(rows[first : first + count]), expected[first : first + count])


def test_an_older_cpu_dequantizes_nf4(monkeypatch):
    matrix, rows = weight(64, 128), weight(5, 128)
    expected = functional.linear(rows.float(), matrix.float())
    if module.supports_nf4_packed():
        assert isinstance(quant_linear(WeightSource.from_tensor(matrix), "nf4"), Nf4PackedLinear)
    monkeypatch.setattr(module, "supports_nf4_packed", lambda: False)

    nf4, double = (
        quant_linear(WeightSource.from_tensor(matrix), quant_format) for quant_format in ("nf4", "nf4-double")
    )

    assert isinstance(nf4, Nf4DequantizedLinear)
    assert double.bytes < nf4.bytes
    assert max(relative_error(nf4(rows), expected), relative_error(double(rows), expected)) < TOLERANCE["nf4"]
    assert "AVX512-BF16" in hardware_warning("nf4", CPU)


@each_row("quant_format", ["nf4", "nf4-double"])
def test_chunks_that_an_older_cpu_dequantizes_are_those_of_the_whole_weight(monkeypatch, quant_format):
    monkeypatch.setattr(module, "supports_nf4_packed", lambda: False)
    monkeypatch.setattr(linear, "CHUNK_ELEMENTS", 64 * 128)
    matrix, rows = weight(200, 128), weight(5, 128)
    library = module._bitsandbytes().functional
    is_double = quant_format == "nf4-double"
    packed, state = library.quantize_4bit(matrix, blocksize=64, quant_type="nf4", compress_statistics=is_double)

    out = quant_linear(WeightSource.from_tensor(matrix), quant_format)(rows)

    whole = functional.linear(rows.float(), library.dequantize_4bit(packed, state).float())
    assert relative_error(out, whole) < 0.01  # sums in bfloat16


@pytest.mark.usefixtures("native_library")
def test_eight_bits_are_blocks_where_native_kernels_multiply_them():
    wide, narrow = (quant_linear(WeightSource.from_tensor(weight(64, inputs)), "int8") for inputs in (96, 100))

    assert isinstance(wide, PackedLinear)
    assert not isinstance(narrow, PackedLinear)  # whole groups of 32 inputs only
    assert hardware_warning("int8", CPU) == ""


def test_without_native_kernels_eight_bits_are_dequantized_in_every_pass(monkeypatch, no_kernels):
    matrix, rows = weight(64, 128), weight(5, 128)
    monkeypatch.setattr(module, "native_kernels", lambda: NativeKernels(None, "no C++ compiler"))

    multiply = quant_linear(WeightSource.from_tensor(matrix), "int8")

    assert isinstance(multiply, DequantizedLinear)
    assert relative_error(multiply(rows), functional.linear(rows.float(), matrix.float())) < TOLERANCE["int8"]
    assert "dequantized in every pass, with no speedup: no C++ compiler" in hardware_warning("int8", CPU)


def test_there_is_no_warning_for_supported_formats():
    assert hardware_warning("float", CPU) == ""
    assert hardware_warning("nf4", torch.device("cuda")) == ""


def test_without_bitsandbytes_the_error_is_one_line_with_a_remedy(monkeypatch):
    module._bitsandbytes.cache_clear()
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)

    with pytest.raises(ModelError, match=r"pip install 'bitsandbytes.*--weights float") as caught:
        quant_linear(WeightSource.from_tensor(weight(64, 64)), "nf4")
    assert "\n" not in str(caught.value)
    module._bitsandbytes.cache_clear()
