"""Blocks of every type have the values of llama.cpp, and bf16 is rounded as torch rounds it."""

import warnings

import gguf
import numpy
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufTensor
from specchat.weights.gguf.gguf_manifest import HeadOrder, MappedTensor, WeightChange
from specchat.weights.gguf.gguf_rows import (
    SCALE_OFFSETS,
    PublishedRows,
    TensorBytes,
    bf16_bits,
    check_dequantizable,
    dequantized,
    has_finite_scales,
)
from specchat.weights.gguf.gguf_tensors import GgufTensorFiles
from specchat.weights.tensor_files import TensorLocation
from tests.each_row import each_row

HALF_SCALES = {  # where the scales are: random bytes there could be infinite
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
    "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip


def is_dequantizable(name):
    try:
        check_dequantizable(GgufTensor(None, "tensor", (1,), name, 0, 0))
    except ModelError:
        return False
    return True


TYPES = [kind.name for kind in GGMLQuantizationType if kind in GGML_QUANT_SIZES and is_dequantizable(kind.name)]


def random_blocks(name, count):
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    chance = numpy.random.default_rng(7)
    if name in ("F32", "F16", "BF16"):
        floats = chance.standard_normal((count, values)).astype(numpy.float32)
        return gguf.quants.quantize(floats, GGMLQuantizationType[name]).view(numpy.uint8).reshape(count, size)
    blocks = chance.integers(0, 256, (count, size), dtype=numpy.uint8)
    for place in HALF_SCALES.get(name, ()):
        scales = chance.standard_normal(count).astype(numpy.float16)
        blocks[:, place : place + 2] = scales[:, None].view(numpy.uint8)
    if name == "MXFP4":
        blocks[:, 0] = chance.integers(100, 140, count)  # exponents
    if name == "IQ1_M":
        blocks[:, 55] &= 0x3F  # the top of the scale's exponent
    return blocks


def test_all_published_types_are_known():
    others = {"F32", "F16", "BF16", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0"}
    assert others | {"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"} <= set(TYPES)


@each_row("name", TYPES)
def test_values_are_those_of_the_package_gguf(tmp_path, name):
    kind = GGMLQuantizationType[name]
    block_values, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = random_blocks(name, 18 * 11)
    rows = blocks.reshape(11, -1)
    path = tmp_path / "blocks"
    path.write_bytes(bytes(64) + rows.tobytes())
    tensor = GgufTensor(path, "tensor", (11, 18 * block_values), name, 64, rows.nbytes)

    with warnings.catch_warnings(action="ignore"):
        expected = dequantize(rows, kind).reshape(-1)
    values = dequantized(TensorBytes(tensor).rows(0, 11), name)

    assert block_bytes * 18 == tensor.row_bytes
    assert numpy.isfinite(expected).all()
    assert numpy.array_equal(values.view(numpy.uint32), expected.view(numpy.uint32))


def test_rows_that_llama_cpp_stores_in_pairs_are_read_in_the_published_order(tmp_path):
    rows = numpy.arange(16, dtype=numpy.float32).reshape(8, 2)
    (tmp_path / "rows").write_bytes(bytes(3) + rows.tobytes())
    tensor = GgufTensor(tmp_path / "rows", "tensor", (8, 2), "F32", 3, rows.nbytes)

    published = PublishedRows.of(MappedTensor(tensor, "name", WeightChange.PAIRED_ROWS, 2))

    order = [0, 2, 1, 3, 4, 6, 5, 7]
    assert published.blocks(1, 6).view(numpy.float32).tolist() == rows[order[1:6]].tolist()
    assert published.bf16(2, 8).tolist() == bf16_bits(rows[order[2:]]).tolist()


@each_row(
    "order, expected",
    [
        (HeadOrder(2, 2, 1), [0, 2, 1, 3]),  # both heads of the first group, then those of the second
        (HeadOrder(2, 2, 2), [0, 1, 4, 5, 2, 3, 6, 7]),
        (HeadOrder(2, 2, 1, first=2), [0, 1, 2, 4, 3, 5]),
        (HeadOrder(2, 2, 1, skipped=2), [1, 3]),
    ],
)
def test_heads_that_are_stored_in_another_order_are_read_in_the_published_one(tmp_path, order, expected):
    rows = numpy.arange(2 * (order.first + order.count), dtype=numpy.float32).reshape(-1, 2)
    (tmp_path / "rows").write_bytes(rows.tobytes())
    tensor = GgufTensor(tmp_path / "rows", "tensor", (len(expected), 2), "F32", 0, 8 * len(expected))

    published = PublishedRows.of(MappedTensor(tensor, "name", head_order=order))

    assert published.blocks(1, len(expected)).view(numpy.float32).tolist() == rows[expected[1:]].tolist()
    assert published.bf16(0, 2).tolist() == bf16_bits(rows[expected[:2]]).tolist()


def test_columns_of_heads_are_read_in_the_published_order_and_their_blocks_with_the_inputs_that_they_are_for(tmp_path):
    stored = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)
    (tmp_path / "rows").write_bytes(stored.tobytes())
    tensor = GgufTensor(tmp_path / "rows", "tensor", (2, 4), "F32", 0, stored.nbytes)
    mapped = MappedTensor(tensor, "name", head_order=HeadOrder(2, 2, 1, is_of_columns=True))
    location = {"name": TensorLocation(tensor.path, "tensor", tensor.shape)}

    files = GgufTensorFiles(tmp_path, location, {"name": mapped})

    published, blocks = files.read_rows("name", 0, 2).float(), files.stored_blocks("name")
    assert published.tolist() == stored[:, [0, 2, 1, 3]].tolist()
    assert torch.equal(blocks.read_rows(0, 2).view(torch.float32), published[:, blocks.inputs])


@each_row("stored", [[-1.0, 0.0], [-1.0, 2.0]])
def test_rates_that_are_no_negative_numbers_are_damaged(tmp_path, stored):
    (tmp_path / "rates").write_bytes(numpy.float32(stored).tobytes())
    tensor = GgufTensor(tmp_path / "rates", "blk.0.ssm_a", (2,), "F32", 0, 8)

    with pytest.raises(ModelError, match=r"damaged: blk\.0\.ssm_a contains NaN or infinite values"):
        PublishedRows.of(MappedTensor(tensor, "name", WeightChange.MINUS_EXP)).bf16(0, 1)


def test_a_file_that_is_too_short_for_a_tensor_is_a_clear_line(tmp_path):
    (tmp_path / "rows").write_bytes(bytes(40))

    with pytest.raises(ModelError, match="has changed since it was opened; is it still being downloaded"):
        TensorBytes(GgufTensor(tmp_path / "rows", "tensor", (4, 4), "F32", 32, 64)).rows(0, 4)
    with pytest.raises(ModelError, match="gone: cannot be read: No such file"):
        TensorBytes(GgufTensor(tmp_path / "gone", "tensor", (4, 4), "F32", 32, 64))


@each_row("name", SCALE_OFFSETS)
def test_scales_that_are_not_finite_are_found_wherever_they_are(name):
    blocks = random_blocks(name, 6)
    assert list(SCALE_OFFSETS[name]) == HALF_SCALES[name]
    assert has_finite_scales(blocks.reshape(2, -1), name)

    for place in HALF_SCALES[name]:
        for bad in (numpy.inf, -numpy.inf, numpy.nan):
            damaged = blocks.copy()
            damaged[5, place : place + 2] = numpy.float16([bad]).view(numpy.uint8)
            assert not has_finite_scales(damaged.reshape(2, -1), name)


def test_a_group_that_is_not_full_has_the_same_values():
    blocks = random_blocks("Q4_0", 128 * 3 + 5)

    assert numpy.array_equal(dequantized(blocks, "Q4_0")[-160:], dequantized(blocks[-5:], "Q4_0"))


def test_bf16_is_rounded_as_torch_rounds_it():
    chance = numpy.random.default_rng(1)
    bits = chance.integers(0, 2**32, 200_000, dtype=numpy.uint32)
    ties = (chance.integers(0, 2**16, 1000, dtype=numpy.uint32) << 16) | 0x8000
    values = numpy.concatenate([bits, ties]).view(numpy.float32)
    values = values[numpy.isfinite(values)]

    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(numpy.uint16)

    assert numpy.array_equal(bf16_bits(values), expected)
