"""The product with packed 4-bit weights is that with dequantized ones, and a row has the same bits in every batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton has no release for this platform")

from triton.runtime import interpreter

from specchat.forward.cuda.triton_linear import (
    FEW_ROWS,
    LEAST_BLOCKS,
    LEAST_TILES,
    ended_splits,
    packed_product,
    split_count,
)
from specchat.forward.linear.byte_linear import ByteWeight
from specchat.forward.linear.int4_linear import Int4Weight, sample_weight
from specchat.forward.linear.linear import is_right_product
from tests.cover import matrix
from tests.triton_interpreter import DEVICE, IS_INTERPRETED, interpreted_kernels

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 0.004, torch.bfloat16: 0.03}
INPUTS = [128, 80, 200, 384]
OUTPUTS = [32, 40, 8]
GROUP_SIZES = [128, 64, 16, None]


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


def weight_of(outputs: int, inputs: int, group_size: int | None) -> Int4Weight:
    generator, groups = torch.Generator().manual_seed(1), -(-inputs // (group_size or inputs))
    numbers = torch.randint(16, (outputs, inputs), generator=generator, dtype=torch.uint8)
    zeros = torch.randint(17, (groups, outputs), generator=generator)
    scales = (torch.rand(groups, outputs, generator=generator) / 64).half()
    return Int4Weight.pack(numbers, zeros, scales, group_size or inputs).to(DEVICE)


def rows_of(dtype: torch.dtype, count: int, inputs: int) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(2)).to(dtype).to(DEVICE)


@pytest.mark.parametrize(
    ("inputs", "outputs", "group_size", "dtype", "count"),
    matrix(INPUTS, OUTPUTS, GROUP_SIZES, DTYPES, [1, 3], rounds=2),
)
def test_the_product_is_that_of_dequantized_weights(inputs, outputs, group_size, dtype, count):
    weight, rows, tolerance = weight_of(outputs, inputs, group_size), rows_of(dtype, count, inputs), TOLERANCE[dtype]
    bias = torch.linspace(-1, 1, outputs).to(rows) if count > 1 else None

    floats = weight.dequantized(torch.float32)
    expected = functional.linear(rows.float(), floats, bias.float() if bias is not None else None)

    assert torch.allclose(packed_product(rows, weight, bias).float(), expected, tolerance, tolerance)


@pytest.mark.full
def test_a_prefill_is_multiplied_by_the_same_weights():
    weight, rows = weight_of(40, 200, 64), rows_of(torch.float32, FEW_ROWS + 5, 200)

    expected = functional.linear(rows, weight.dequantized(torch.float32))

    assert torch.allclose(packed_product(rows, weight, None), expected, 1e-5, 1e-5)


@pytest.mark.full
def test_splits_of_the_inputs_are_added():
    for inputs, outputs, group_size in ((1300, 72, 128), (1280, 64, 256), (1100, 8, 384), (330, 40, 16)):
        weight, rows = weight_of(outputs, inputs, group_size), rows_of(torch.float32, 18, inputs)
        bias = torch.linspace(-1, 1, outputs).to(rows)

        expected = functional.linear(rows, weight.dequantized(torch.float32), bias)

        assert split_count(outputs, len(weight.words), 16) > 1
        assert torch.allclose(packed_product(rows, weight, bias), expected, 1e-5, 1e-5), (inputs, outputs, group_size)


@pytest.mark.skipif(not IS_INTERPRETED, reason="a GPU ends programs in an order of its own")
def test_splits_are_added_in_their_order_whichever_ends_last(monkeypatch):
    weight, rows = weight_of(40, 1300, 128), rows_of(torch.bfloat16, 18, 1300)
    bias, count = torch.linspace(-1, 1, 40).to(rows), split_count(40, len(weight.words), 16)
    expected = packed_product(rows, weight, bias)
    place = interpreter.InterpreterBuilder.set_grid_idx
    for last in range(count):

        def turned(self, x, y, z, last=last):
            place(self, x, (y + last) % count, z)

        monkeypatch.setattr(interpreter.InterpreterBuilder, "set_grid_idx", turned)

        assert torch.equal(packed_product(rows, weight, bias), expected)
        assert not ended_splits(DEVICE, LEAST_TILES).any()
    assert count > 2


@pytest.mark.skipif(IS_INTERPRETED, reason="the interpreter runs one program after the other")
def test_all_parts_are_there_when_they_are_added():
    """As often as chance may need to show that they are not."""
    weight, rows = bytes_of(4096, 4096, "int8"), rows_of(torch.bfloat16, 16, 4096)
    expected = packed_product(rows, weight, None)

    assert all(torch.equal(packed_product(rows, weight, None), expected) for _ in range(2000))


def test_no_split_is_empty_and_each_reads_several_blocks():
    for outputs in (64, 4096, 6144, 28672):
        for blocks in (1, 2, 5, 16, 43, 56):
            for multiprocessors in (28, 128, 132):
                splits = split_count(outputs, blocks, multiprocessors)
                blocks_of_split = -(-blocks // splits)
                assert (splits - 1) * blocks_of_split < blocks <= splits * blocks_of_split
                assert splits == 1 or blocks_of_split >= LEAST_BLOCKS


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [
        (200, torch.float16),
        pytest.param(1300, torch.float32, marks=pytest.mark.full),
        pytest.param(1300, torch.bfloat16, marks=pytest.mark.full),
    ],
)
def test_a_row_has_the_same_bits_in_every_batch_of_few_rows(inputs, dtype):
    """In tiles of 16, 32 and 64 rows, at every place of them, with several splits of the inputs."""
    weight, rows = weight_of(40, inputs, 64), rows_of(dtype, FEW_ROWS, inputs)
    together = packed_product(rows, weight, None)

    for first, count in ((0, 1), (5, 7), (3, 16), (40, 17), (30, 33)):
        few = rows[first : first + count]
        assert torch.equal(packed_product(few, weight, None), together[first : first + count])


def test_layers_are_stacked_by_outputs():
    parts = [weight_of(outputs, 200, 64) for outputs in (40, 8)]

    stacked = Int4Weight.stacked(parts)

    assert torch.equal(
        stacked.dequantized(torch.float32), torch.cat([part.dequantized(torch.float32) for part in parts])
    )
    assert stacked.out_features == 48
    assert torch.equal(stacked.dequantized(torch.float32, 38, 43), stacked.dequantized(torch.float32)[38:43])


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_trial_at_load_passes_for_the_kernel_and_fails_for_a_factor(dtype):
    weight = sample_weight().to(DEVICE)

    def is_right(factor: float) -> bool:
        return is_right_product(lambda rows: factor * packed_product(rows, weight, None), weight.dequantized(dtype))

    assert is_right(1.0)
    assert not is_right(1.2)


NUMBERS = torch.arange(256, dtype=torch.uint8)
BYTES = {"int8": torch.int8, "e4m3": torch.float8_e4m3fn}


def bytes_of(outputs: int, inputs: int, kind: str) -> ByteWeight:
    numbers = torch.randint(255, (outputs, inputs), generator=torch.Generator().manual_seed(3)).to(torch.uint8)
    numbers[numbers == 127] = 0  # a NaN of e4m3, as 255
    return ByteWeight.pack(numbers.view(BYTES[kind]).to(DEVICE), torch.linspace(0.001, 0.01, outputs).to(DEVICE))


@pytest.mark.parametrize("kind", BYTES)
def test_a_word_holds_two_numbers_of_eight_bits(kind):
    numbers = NUMBERS[:254].view(2, 127).contiguous().view(BYTES[kind])

    weight = ByteWeight.pack(numbers, torch.ones(2))

    assert weight.words.shape == (1, 2, 64)
    assert torch.equal(weight.dequantized(torch.float32).nan_to_num(), numbers.float().nan_to_num())


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind", "dtype", "count"),
    matrix([128, 80, 300], [32, 40, 8], list(BYTES), DTYPES, [1, 3], rounds=2),
)
def test_the_product_of_bytes_is_that_of_dequantized_weights(inputs, outputs, kind, dtype, count):
    weight, rows, tolerance = bytes_of(outputs, inputs, kind), rows_of(dtype, count, inputs), TOLERANCE[dtype]
    bias = torch.linspace(-1, 1, outputs).to(rows) if count > 1 else None

    expected = functional.linear(
        rows.double(), weight.dequantized(torch.float64), None if bias is None else bias.double()
    )

    assert torch.allclose(packed_product(rows, weight, bias).double(), expected, tolerance, 4 * tolerance)


@pytest.mark.parametrize("kind", BYTES)
def test_every_number_of_eight_bits_is_exact(kind):
    """A row with a single one picks a number of each output."""
    numbers = NUMBERS.clone()
    numbers[[127, 255]] = 0
    weight = ByteWeight.pack(numbers.view(BYTES[kind])[:, None].to(DEVICE), torch.ones(256, device=DEVICE))

    product = packed_product(torch.ones(1, 1, dtype=torch.bfloat16, device=DEVICE), weight, None)

    assert torch.equal(product[0].float(), numbers.view(BYTES[kind]).float().to(DEVICE))


@pytest.mark.parametrize("kind", BYTES)
def test_a_row_of_bytes_has_the_same_bits_in_every_batch(kind):
    weight, rows = bytes_of(40, 700, kind), rows_of(torch.bfloat16, FEW_ROWS + 6, 700)
    together = packed_product(rows, weight, None)

    assert split_count(40, len(weight.words), 16) > 1
    for first, count in ((0, 1), (5, 7), (40, 17)):
        few = rows[first : first + count]
        assert torch.equal(packed_product(few, weight, None), together[first : first + count])
