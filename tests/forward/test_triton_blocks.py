"""Blocks of GGUF files on a GPU: the product is that with their numbers, and a row has the same bits in every batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.forward.cuda.kernel_trial import passes
from specchat.forward.cuda.triton_blocks import block_product, tiled_blocks
from specchat.forward.cuda.triton_linear import FEW_ROWS, split_count
from specchat.forward.linear import packed_linear
from specchat.forward.linear.block_linear import (
    BLOCK_TYPES,
    NF4,
    NF4_CODES,
    BlockLinear,
    BlockWeight,
    CodeForm,
    block_linear,
    sample_weight,
)
from specchat.forward.linear.linear import bytes_of, is_right_product
from specchat.forward.linear.packed_linear import PACKED_FORMATS, StoredBlocks
from specchat.forward.linear.quant_linear import Nf4Linear, with_own_kernel
from specchat.forward.llama.embedding_rows import BlockEmbedding
from specchat.weights.gguf.gguf_file import MULTIPLIED_TYPES
from specchat.weights.gguf.gguf_rows import SCALE_OFFSETS
from tests.each_row import each_row
from tests.triton_interpreter import DEVICE, interpreted_kernels

TOLERANCE = {torch.float32: 1e-5, torch.float16: 0.002, torch.bfloat16: 0.01}
WIDE_TYPES = [name for name, kind in BLOCK_TYPES.items() if kind.step == 32]  # of blocks of 32 inputs


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


def stored(type_name: str, outputs: int, inputs: int, seed: int = 1) -> StoredBlocks:
    """Random bytes, with steps between 2**-9 and 2**-8, also negative ones."""
    kind = BLOCK_TYPES[type_name]
    shape = (outputs, inputs // kind.step, kind.bytes)
    blocks = torch.from_numpy(numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8))
    for offset in (0,) if type_name == NF4 else SCALE_OFFSETS.get(type_name, ()):
        blocks[..., offset + 1] = 0x18 | (blocks[..., offset + 1] & 0x80)
    if kind.form is CodeForm.E2M1:
        blocks[..., 0] = 116 + blocks[..., 0] % 8
    rows = blocks.flatten(1)
    return StoredBlocks(type_name, (outputs, inputs), lambda first, last: rows[first:last])


def dequantize(part: StoredBlocks) -> torch.Tensor:
    """By the reader of GGUF files; blocks of NF4 by their definition."""
    if part.type_name != NF4:
        return packed_linear.dequantize(part)
    blocks = part.read_rows(0, part.shape[0]).view(part.shape[0], -1, 34)
    codes = torch.stack((blocks[..., 2:] >> 4, blocks[..., 2:] & 15), dim=-1).flatten(2).long()
    steps = blocks[..., :2].contiguous().view(torch.float16).float()
    return (torch.tensor(NF4_CODES)[codes] * steps).flatten(1)


def weight_of(type_name: str, outputs: int, inputs: int) -> BlockWeight:
    return BlockWeight.pack([stored(type_name, outputs, inputs)], DEVICE)


def rows_of(dtype: torch.dtype, count: int, inputs: int) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(2)).to(dtype).to(DEVICE)


def is_near(ours: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    return bool((ours.double().cpu() - expected).norm() <= TOLERANCE[dtype] * expected.norm())


def test_every_type_that_a_cpu_multiplies_is_multiplied_and_planned_so():
    assert set(BLOCK_TYPES) - {NF4} == {*PACKED_FORMATS, "MXFP4"} == set(MULTIPLIED_TYPES)


@each_row("type_name, inputs", [*((name, 512) for name in BLOCK_TYPES), *((name, 160) for name in WIDE_TYPES)])
def test_no_number_of_the_file_is_rounded(type_name, inputs):
    """Also where the inputs are no whole blocks of the layout, and where two weights are stacked."""
    parts = [stored(type_name, outputs, inputs, seed=outputs) for outputs in (37, 8)]

    packed = BlockWeight.pack(parts, DEVICE)

    expected = torch.cat([dequantize(part) for part in parts])
    assert torch.equal(packed.dequantized(torch.float32).cpu(), expected)
    assert torch.equal(packed.dequantized(torch.bfloat16).cpu(), expected.bfloat16())


def test_powers_of_two_of_every_size_are_kept():
    """The steps of MXFP4 go from 2**-128 on; a number is at most 12 of the largest."""
    blocks = stored("MXFP4", 250, 32).read_rows(0, 250).clone()
    blocks[:, 0] = torch.arange(250)
    part = StoredBlocks("MXFP4", (250, 32), lambda first, last: blocks[first:last])

    packed = BlockWeight.pack([part], DEVICE)

    assert torch.equal(packed.dequantized(torch.float32).cpu(), dequantize(part))


@each_row("type_name", BLOCK_TYPES)
def test_blocks_take_hardly_more_memory_than_in_the_file(type_name):
    weight, in_file = weight_of(type_name, 64, 1024), stored(type_name, 64, 1024).read_rows(0, 64).nbytes

    assert in_file <= bytes_of(weight) <= (1.06 if type_name == "MXFP4" else 1.03) * in_file


@each_row("type_name", BLOCK_TYPES, shares=3)
def test_the_product_is_that_of_the_numbers_of_the_file(type_name):
    weight, rows = weight_of(type_name, 40, 256), rows_of(torch.float32, 3, 256)
    bias = torch.linspace(-1, 1, 40).to(rows)

    expected = functional.linear(
        rows.double().cpu(), dequantize(stored(type_name, 40, 256)).double(), bias.double().cpu()
    )
    assert is_near(block_product(rows, weight, bias), expected, torch.float32)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("outputs", "inputs", "count"), [(128, 1280, 1), (40, 800, 18), (128, 256, 64), (8, 2048, FEW_ROWS + 5)]
)
@pytest.mark.parametrize("type_name", BLOCK_TYPES)
def test_it_is_so_in_splits_and_tiles_of_every_size(type_name, outputs, inputs, count, dtype):
    inputs = inputs if type_name in WIDE_TYPES else -(-inputs // 256) * 256
    weight, rows = weight_of(type_name, outputs, inputs), rows_of(dtype, count, inputs)
    assert split_count(outputs, len(weight.low), 16) > 1 or inputs == 256

    expected = functional.linear(rows.double().cpu(), weight.dequantized(dtype).double().cpu())

    assert is_near(block_product(rows, weight, None), expected, dtype)


@pytest.mark.parametrize(
    ("type_name", "inputs", "dtype"),
    [
        ("Q4_K", 256, torch.bfloat16),
        *(pytest.param(each, 1280, torch.bfloat16, marks=pytest.mark.full) for each in BLOCK_TYPES),
        *(pytest.param(each, 800, torch.float16, marks=pytest.mark.full) for each in WIDE_TYPES),
    ],
)
def test_a_row_has_the_same_bits_in_every_batch_of_few_rows(type_name, inputs, dtype):
    """In tiles of 16, 32 and 64 rows, at every place of them, with several splits of the inputs."""
    weight, rows = weight_of(type_name, 40, inputs), rows_of(dtype, FEW_ROWS, inputs)
    together = block_product(rows, weight, None)

    for first, count in ((0, 1), (63, 1), (5, 7), (3, 16), (40, 17), (30, 33)):
        few = rows[first : first + count]
        assert torch.equal(block_product(few, weight, None), together[first : first + count])


@pytest.mark.full
@pytest.mark.parametrize("type_name", BLOCK_TYPES)
def test_the_trial_at_load_passes_for_the_kernel_and_fails_for_a_wrong_one(type_name, caplog):
    weight = sample_weight(type_name, DEVICE)

    def trial(multiply) -> bool:
        floats = weight.dequantized(torch.bfloat16)
        return passes(lambda: is_right_product(lambda rows: multiply(rows, weight, None), floats), "kernels of a test")

    assert trial(block_product)
    assert not trial(lambda rows, *others: block_product(rows, *others) * 1.2)
    assert not trial(lambda rows, *others: block_product(rows, *others) + len(rows) * 1e-3)
    assert caplog.text.count("give other results") == 2


def test_a_layer_of_several_types_is_one_above_the_other(monkeypatch):
    monkeypatch.setattr("specchat.forward.linear.block_linear.block_matmul", lambda *_: block_product)
    parts = [stored(name, outputs, 256) for name, outputs in (("Q4_K", 24), ("Q4_K", 8), ("Q6_K", 8))]
    rows, bias = rows_of(torch.float32, 2, 256), torch.linspace(-1, 1, 40).to(DEVICE)

    linear = block_linear(parts, torch.float32, DEVICE, bias)

    assert isinstance(linear, BlockLinear) and [part.type_name for part in linear.parts] == ["Q4_K", "Q6_K"]
    numbers = torch.cat([dequantize(part) for part in parts]).double()
    expected = functional.linear(rows.double().cpu(), numbers, bias.double().cpu())
    assert is_near(linear(rows), expected, torch.float32)
    assert linear.bytes == sum(map(bytes_of, linear.parts)) + bias.nbytes


@each_row("is_double", [False, True])
def test_weights_of_bitsandbytes_keep_their_numbers(is_double, monkeypatch):
    """But for the largest number of 64, which becomes one of 16 bits."""
    library = pytest.importorskip("bitsandbytes").functional
    monkeypatch.setattr("specchat.forward.linear.block_linear.block_matmul", lambda *_: block_product)
    matrix = rows_of(torch.float32, 40, 256) * 0.02
    packed, state = library.quantize_4bit(matrix, quant_type="nf4", blocksize=64, compress_statistics=is_double)
    bias = torch.linspace(-1, 1, 40).to(DEVICE)

    linear = with_own_kernel(Nf4Linear(packed, state, bias))

    assert isinstance(linear, BlockLinear) and linear.bias is bias
    exact = library.dequantize_4bit(packed, state)
    assert torch.allclose(linear.parts[0].dequantized(torch.float32), exact, rtol=1e-3, atol=1e-8)
    rows = rows_of(torch.float32, 3, 256)
    assert is_near(linear(rows), functional.linear(rows.double(), exact.double(), bias.double()).cpu(), torch.bfloat16)
    assert with_own_kernel(linear) is linear


def test_embeddings_are_rows_of_blocks():
    weight = weight_of("Q6_K", 12, 256)
    table = BlockEmbedding(BlockLinear((weight,), None, block_product), torch.bfloat16)

    rows = table[torch.tensor([[3, 0], [11, 3]], device=DEVICE)]

    assert torch.equal(rows[1], weight.dequantized(torch.bfloat16)[[11, 3]])
    assert (rows.shape, table.shape, table.device) == ((2, 2, 256), (12, 256), weight.low.device)


def test_whole_tiles_are_read_without_a_mask():
    """As all layers of usual models are: the branch that a GPU takes is the one that is compiled."""
    weight, rows = weight_of("Q4_K", 128, 256), rows_of(torch.float32, 1, 256)
    tiles = tiled_blocks(weight)

    expected = functional.linear(rows.double().cpu(), weight.dequantized(torch.float32).double().cpu())

    assert tiles.inputs == tiles.blocks * tiles.block_inputs
    assert is_near(tiles.product(rows, None), expected, torch.float32)
