"""Every way to hold a weight multiplies with nearly the same numbers, and says truly what it takes."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from specchat.errors import ModelError
from specchat.forward import linear
from specchat.forward.linear import (
    FP8,
    QUANT_FORMATS,
    TESTED_ROWS,
    DequantizedLinear,
    Fp8Linear,
    Nf4Linear,
    Nf4PackedLinear,
    WeightSource,
    batch_invariant_from,
    hardware_warning,
    max_safe_int8,
    probe_fp8_matmul,
    quant_linear,
)
from specchat.profile import WEIGHT_FORMATS

CPU = torch.device("cpu")
NEAR = {"float": 0.005, "int8": 0.03, "fp8": 0.05, "nf4": 0.15, "nf4-double": 0.15}  # of the length of a result
SMALLER = {"int8": 0.6, "fp8": 0.6, "nf4": 0.35, "nf4-double": 0.35}  # than bfloat16


def weight(outputs, inputs, dtype=torch.bfloat16):
    torch.manual_seed(outputs + inputs)
    return torch.randn(outputs, inputs, dtype=dtype)


def off(got, expected):
    return float((got.float() - expected).norm() / expected.norm())


def test_a_profile_names_every_way_there_is():
    assert tuple(QUANT_FORMATS) == WEIGHT_FORMATS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", QUANT_FORMATS)
@pytest.mark.parametrize("shape", [(7, 13), (50, 80), (48, 80), (72, 64), (264, 288), (130, 192)])
def test_a_product_is_nearly_that_of_floats(shape, way, dtype):
    matrix, bias, rows = weight(*shape, dtype), weight(1, shape[0], dtype)[0], weight(33, shape[1], dtype)
    before = matrix.clone()

    multiply = quant_linear(WeightSource.from_tensor(matrix), way, bias)

    assert torch.equal(before, matrix)
    for count in (1, 3, 33):
        expected = functional.linear(rows[:count].float(), matrix.float(), bias.float())
        got = multiply(rows[:count])
        assert got.dtype == dtype
        assert off(got, expected) < NEAR[way]


@pytest.mark.parametrize("way", SMALLER)
def test_a_smaller_weight_is_smaller(way):
    matrix = weight(512, 256)

    assert (
        quant_linear(WeightSource.from_tensor(matrix), way).bytes
        < SMALLER[way] * quant_linear(WeightSource.from_tensor(matrix), "float").bytes
    )


@pytest.mark.parametrize("way", QUANT_FORMATS)
def test_a_weight_that_is_read_in_slabs_is_the_same(way, monkeypatch):
    matrix, rows = weight(200, 64), weight(4, 64)
    whole = quant_linear(WeightSource.from_tensor(matrix), way)(rows)

    monkeypatch.setattr(linear, "SLAB_NUMBERS", 64 * 64)

    assert len(list(WeightSource.from_tensor(matrix).row_chunks())) == 4
    assert torch.equal(quant_linear(WeightSource.from_tensor(matrix), way)(rows), whole)


@pytest.mark.parametrize("way", SMALLER)
def test_zeros_stay_zeros(way):
    multiply = quant_linear(WeightSource.from_tensor(torch.zeros(64, 64)), way)

    assert torch.equal(multiply(torch.zeros(2, 64)), torch.zeros(2, 64))
    assert torch.equal(multiply(torch.ones(2, 64)), torch.zeros(2, 64))


def test_rows_that_are_no_whole_blocks_stay_floats():
    matrix, rows = weight(64, 80), weight(3, 80)

    assert torch.equal(
        quant_linear(WeightSource.from_tensor(matrix), "nf4")(rows),
        quant_linear(WeightSource.from_tensor(matrix), "float")(rows),
    )


@pytest.mark.parametrize("shape", [(64, 72), (72, 64)])
def test_floats_of_eight_bits_are_for_whole_pieces_of_sixteen(shape):
    matrix, rows = weight(*shape), weight(3, shape[1])

    assert torch.equal(
        quant_linear(WeightSource.from_tensor(matrix), "fp8")(rows),
        quant_linear(WeightSource.from_tensor(matrix), "float")(rows),
    )


def test_numbers_that_eight_bits_can_hold_stay_as_they_are():
    """Rows that reach 448 have the scale 1, and so do outputs."""
    matrix = torch.tensor([448.0, -0.5, 3.25, 0.0] * 4).repeat(16, 1) * torch.tensor([1.0, 8.0] * 8)[:, None]

    multiply = quant_linear(WeightSource.from_tensor(matrix), "fp8")

    assert torch.equal(multiply.weight.float() * multiply.scales[:, None], matrix)
    assert multiply.scales.tolist() == [1, 8] * 8
    assert torch.equal(multiply(matrix[:3]), matrix[:3] @ matrix.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_float_of_eight_bits_is_widened_exactly(dtype):
    every = torch.arange(256, dtype=torch.uint8).view(FP8)
    numbers = every[~every.float().isnan()]

    assert len(numbers) == 254
    assert torch.equal(linear._upcast(numbers, dtype), numbers.to(dtype))


def as_on_a_card(matrix, multiply, bias=None):
    small = quant_linear(WeightSource.from_tensor(matrix), "fp8")
    return Fp8Linear(small.weight, small.scales[None], multiply, bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("multiply", [linear._rowwise_scaled_matmul, linear._tensorwise_scaled_matmul])
def test_what_a_card_does_with_floats_of_eight_bits_is_nearly_that_of_wide_ones(multiply, dtype):
    """torch computes it on a CPU too, slowly, so that no card is needed to try it."""
    matrix, bias = weight(96, 64, dtype), weight(1, 96, dtype)[0]
    rows = weight(5, 64, dtype) * torch.tensor([[1], [9], [0.1], [0], [3]], dtype=dtype)

    got = as_on_a_card(matrix, multiply, bias)(rows)

    assert got.dtype == dtype
    for row, expected in zip(got, functional.linear(rows.float(), matrix.float(), bias.float()), strict=True):
        assert off(row, expected) < NEAR["fp8"]


def test_rows_that_eight_bits_can_hold_are_multiplied_exactly():
    matrix = torch.tensor([448.0, -0.5, 3.25, 0.0] * 4).repeat(16, 1)

    got = as_on_a_card(matrix, linear._rowwise_scaled_matmul)(matrix[:3])

    assert torch.equal(got, (matrix[:3] @ matrix.T).bfloat16().float())


@pytest.mark.parametrize("lacking", [(), ("_scaled_by_rows",), ("_scaled_by_rows", "_scaled_afterwards")], ids=len)
@pytest.mark.parametrize("fault", ["refuses", "forgets its scales"])
def test_how_a_device_multiplies_floats_of_eight_bits_is_tried(lacking, fault, monkeypatch):
    ways = [linear._rowwise_scaled_matmul, linear._tensorwise_scaled_matmul, None]
    probe_fp8_matmul.cache_clear()

    def faulty(rows, weight, _by_row, _by_output):
        if fault == "refuses":
            raise RuntimeError("torch._scaled_mm is for newer cards")
        return rows.float() @ weight.float().T

    for name in lacking:
        monkeypatch.setattr(linear, name, faulty)
    found = probe_fp8_matmul(CPU)
    probe_fp8_matmul.cache_clear()

    assert found is ways[len(lacking)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_machine_without_products_of_eight_bit_floats_widens_them(device, monkeypatch):
    matrix, bias, rows = weight(64, 128), weight(1, 64)[0], weight(5, 128)
    monkeypatch.setattr(linear, "tried_fp8_product", lambda _device: None)

    multiply = quant_linear(WeightSource.from_tensor(matrix), "fp8", bias)

    assert isinstance(multiply, DequantizedLinear)
    assert multiply.weight.dtype == FP8
    assert off(multiply(rows), functional.linear(rows.float(), matrix.float(), bias.float())) < NEAR["fp8"]
    assert "widened for every pass" in hardware_warning("fp8", torch.device(device))


def test_a_card_that_multiplies_floats_of_eight_bits_lacks_nothing(monkeypatch):
    monkeypatch.setattr(linear, "tried_fp8_product", lambda _device: linear._rowwise_scaled_matmul)

    assert hardware_warning("fp8", torch.device("cuda")) == ""
    assert "int8 is not" in hardware_warning("fp8", CPU)


def test_four_bits_are_those_of_bitsandbytes():
    matrix = weight(96, 64, torch.float32)
    code = linear._bitsandbytes().functional.get_4bit_type("nf4", device="cpu")
    expected, state = linear._bitsandbytes().functional.quantize_4bit(matrix, blocksize=32, quant_type="nf4")

    found, largest = linear._quantize_nf4(matrix.view(-1, 32), code)

    assert torch.equal(expected, found)
    assert torch.equal(state.absmax, largest)


def test_integers_give_a_row_the_same_in_any_company():
    assert 1 == batch_invariant_from(quant_linear(WeightSource.from_tensor(weight(96, 64)), "int8"), 64, weight(1, 1))


def test_a_product_that_looks_at_other_rows_is_steady_at_full_width_alone():
    assert TESTED_ROWS == batch_invariant_from(lambda rows: rows - rows.mean(dim=0), 64, weight(1, 1))


@pytest.mark.parametrize("fewest", [1, 2, 4, 16])
def test_few_rows_that_are_rounded_otherwise_now_and_then_are_noticed(fewest):
    """As sums in another order are in bfloat16: in one of a thousand numbers."""

    def multiply(rows):
        return rows + 1 if len(rows) >= fewest else torch.where(rows > 2.9, rows + 2, rows + 1)

    assert fewest == batch_invariant_from(multiply, 896, weight(1, 1))


def test_an_older_cpu_unpacks_four_bits(monkeypatch):
    matrix, rows = weight(64, 128), weight(5, 128)
    expected = functional.linear(rows.float(), matrix.float())
    if linear.supports_nf4_packed():
        assert isinstance(quant_linear(WeightSource.from_tensor(matrix), "nf4"), Nf4PackedLinear)
    monkeypatch.setattr(linear, "has_packed_4bit", lambda: False)

    once, twice = (quant_linear(WeightSource.from_tensor(matrix), way) for way in ("nf4", "nf4-double"))

    assert isinstance(once, Nf4Linear)
    assert twice.bytes < once.bytes
    assert max(off(once(rows), expected), off(twice(rows), expected)) < NEAR["nf4"]
    assert "AVX512-BF16" in hardware_warning("nf4", CPU)


def test_a_cpu_without_integer_products_widens_bytes(monkeypatch):
    matrix, rows = weight(64, 128), weight(5, 128)
    monkeypatch.setattr(linear, "int8_top", lambda: 0)

    multiply = quant_linear(WeightSource.from_tensor(matrix), "int8")

    assert isinstance(multiply, DequantizedLinear)
    assert off(multiply(rows), functional.linear(rows.float(), matrix.float())) < NEAR["int8"]
    assert "widened" in hardware_warning("int8", CPU)


def test_a_cpu_without_vnni_keeps_seven_bits_and_overflows_nowhere():
    """Asked of oneDNN itself, told to do without: largest bytes times largest bytes."""
    if max_safe_int8() == 0:
        pytest.skip("oneDNN multiplies no bytes on this CPU")
    program = (
        "import torch\n"
        "from specchat.forward.linear import Source, held, int8_top, shortfall\n"
        "got = held(Source.of(torch.ones(32, 256)), 'int8')(torch.ones(3, 256))\n"
        "print(int8_top(), float((got - 256).abs().max()) < 0.01, shortfall('int8', torch.device('cpu')))\n"
    )
    told = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    said = subprocess.run([sys.executable, "-c", program], env=told, capture_output=True, text=True, check=True).stdout

    assert said.strip() == "63 True this CPU has no VNNI: int8 weights keep 7 bits"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_card_does_with_integers_is_nearly_that_of_floats(dtype):
    """bitsandbytes computes it on a CPU too, so that no card is needed to try it."""
    matrix, bias, rows = weight(64, 128, dtype), weight(1, 64, dtype)[0], weight(5, 128, dtype)

    multiply = linear._llm_int8_linear(WeightSource.from_tensor(matrix), bias)

    assert multiply(rows).dtype == dtype
    assert off(multiply(rows), functional.linear(rows.float(), matrix.float(), bias.float())) < NEAR["int8"]
    assert torch.equal(multiply(rows)[:1], multiply(rows[:1]))


def test_a_machine_that_lacks_nothing_is_told_nothing():
    assert hardware_warning("float", CPU) == ""
    assert hardware_warning("nf4", torch.device("cuda")) == ""


def test_without_bitsandbytes_there_is_one_line_that_says_what_to_do(monkeypatch):
    linear._bitsandbytes.cache_clear()
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)

    with pytest.raises(ModelError, match=r"pip install 'bitsandbytes.*--weights float") as caught:
        quant_linear(WeightSource.from_tensor(weight(64, 64)), "nf4")
    assert "\n" not in str(caught.value)
    linear._bitsandbytes.cache_clear()
