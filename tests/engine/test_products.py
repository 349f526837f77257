"""Every way to hold a weight multiplies with nearly the same numbers, and says truly what it takes."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from specchat.engine import products
from specchat.engine.products import WAYS, Blocks4, Packed4, Source, Widened8, held, int8_top, is_steady, shortfall
from specchat.errors import ModelError
from specchat.profile import WEIGHTS

CPU = torch.device("cpu")
NEAR = {"float": 0.005, "int8": 0.03, "nf4": 0.15, "nf4-double": 0.15}  # of the length of a result
SMALLER = {"int8": 0.6, "nf4": 0.35, "nf4-double": 0.35}  # than bfloat16


def weight(outputs, inputs, dtype=torch.bfloat16):
    torch.manual_seed(outputs + inputs)
    return torch.randn(outputs, inputs, dtype=dtype)


def off(got, expected):
    return float((got.float() - expected).norm() / expected.norm())


def test_a_profile_names_every_way_there_is():
    assert tuple(WAYS) == WEIGHTS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(7, 13), (50, 80), (72, 64), (264, 288), (130, 192)])
def test_a_product_is_nearly_that_of_floats(shape, way, dtype):
    matrix, bias, rows = weight(*shape, dtype), weight(1, shape[0], dtype)[0], weight(33, shape[1], dtype)
    before = matrix.clone()

    multiply = held(Source.of(matrix), way, bias)

    assert torch.equal(before, matrix)
    for count in (1, 3, 33):
        expected = functional.linear(rows[:count].float(), matrix.float(), bias.float())
        got = multiply(rows[:count])
        assert got.dtype == dtype
        assert off(got, expected) < NEAR[way]


@pytest.mark.parametrize("way", SMALLER)
def test_a_smaller_weight_is_smaller(way):
    matrix = weight(512, 256)

    assert held(Source.of(matrix), way).bytes < SMALLER[way] * held(Source.of(matrix), "float").bytes


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_that_is_read_in_slabs_is_the_same(way, monkeypatch):
    matrix, rows = weight(200, 64), weight(4, 64)
    whole = held(Source.of(matrix), way)(rows)

    monkeypatch.setattr(products, "SLAB_NUMBERS", 64 * 64)

    assert len(list(Source.of(matrix).slabs())) == 4
    assert torch.equal(held(Source.of(matrix), way)(rows), whole)


@pytest.mark.parametrize("way", SMALLER)
def test_zeros_stay_zeros(way):
    multiply = held(Source.of(torch.zeros(64, 64)), way)

    assert torch.equal(multiply(torch.zeros(2, 64)), torch.zeros(2, 64))
    assert torch.equal(multiply(torch.ones(2, 64)), torch.zeros(2, 64))


def test_rows_that_are_no_whole_blocks_stay_floats():
    matrix, rows = weight(64, 80), weight(3, 80)

    assert torch.equal(held(Source.of(matrix), "nf4")(rows), held(Source.of(matrix), "float")(rows))


def test_four_bits_are_those_of_bitsandbytes():
    matrix = weight(96, 64, torch.float32)
    code = products._bitsandbytes().functional.get_4bit_type("nf4", device="cpu")
    expected, state = products._bitsandbytes().functional.quantize_4bit(matrix, blocksize=32, quant_type="nf4")

    found, largest = products._nearest4(matrix.view(-1, 32), code)

    assert torch.equal(expected, found)
    assert torch.equal(state.absmax, largest)


def test_integers_give_a_row_the_same_in_any_company():
    assert is_steady(held(Source.of(weight(96, 64)), "int8"), 64, weight(1, 1))


def test_a_product_that_looks_at_other_rows_is_not_steady():
    assert not is_steady(lambda rows: rows - rows.mean(dim=0), 64, weight(1, 1))


def test_an_older_cpu_unpacks_four_bits(monkeypatch):
    matrix, rows = weight(64, 128), weight(5, 128)
    expected = functional.linear(rows.float(), matrix.float())
    if products.has_packed_4bit():
        assert isinstance(held(Source.of(matrix), "nf4"), Packed4)
    monkeypatch.setattr(products, "has_packed_4bit", lambda: False)

    once, twice = (held(Source.of(matrix), way) for way in ("nf4", "nf4-double"))

    assert isinstance(once, Blocks4)
    assert twice.bytes < once.bytes
    assert max(off(once(rows), expected), off(twice(rows), expected)) < NEAR["nf4"]
    assert "AVX512-BF16" in shortfall("nf4", CPU)


def test_a_cpu_without_integer_products_widens_bytes(monkeypatch):
    matrix, rows = weight(64, 128), weight(5, 128)
    monkeypatch.setattr(products, "int8_top", lambda: 0)

    multiply = held(Source.of(matrix), "int8")

    assert isinstance(multiply, Widened8)
    assert off(multiply(rows), functional.linear(rows.float(), matrix.float())) < NEAR["int8"]
    assert "widened" in shortfall("int8", CPU)


def test_a_cpu_without_vnni_keeps_seven_bits_and_overflows_nowhere():
    """Asked of oneDNN itself, told to do without: largest bytes times largest bytes."""
    if int8_top() == 0:
        pytest.skip("oneDNN multiplies no bytes on this CPU")
    program = (
        "import torch\n"
        "from specchat.engine.products import Source, held, int8_top, shortfall\n"
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

    multiply = products._llm_int8(Source.of(matrix), bias)

    assert multiply(rows).dtype == dtype
    assert off(multiply(rows), functional.linear(rows.float(), matrix.float(), bias.float())) < NEAR["int8"]
    assert torch.equal(multiply(rows)[:1], multiply(rows[:1]))


def test_a_machine_that_lacks_nothing_is_told_nothing():
    assert shortfall("float", CPU) == ""
    assert shortfall("nf4", torch.device("cuda")) == ""


def test_without_bitsandbytes_there_is_one_line_that_says_what_to_do(monkeypatch):
    products._bitsandbytes.cache_clear()
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)

    with pytest.raises(ModelError, match=r"pip install 'bitsandbytes.*--weights float") as caught:
        held(Source.of(weight(64, 64)), "nf4")
    assert "\n" not in str(caught.value)
    products._bitsandbytes.cache_clear()
