"""Linear layers on GGUF blocks: the numbers of the file, and the same bits in every batch, on every kind of CPU."""

import mmap

import numpy
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from specchat.forward.linear import packed_linear as packed_module
from specchat.forward.linear.linear import WeightSource
from specchat.forward.linear.packed_linear import (
    PACKED_FORMATS,
    PackedLinear,
    StoredBlocks,
    blocks_of_8_bits,
    dequantize,
    pack,
    packed_kernels,
    packed_linear,
)
from specchat.forward.linear.quant_linear import BLOCKS_OF_8_BITS, quant_linear
from specchat.forward.native.native_ops import NativeBorderError, NativeKernels, native_kernels
from tests.each_row import each_row
from tests.forward.threads import with_threads

INPUTS, OUTPUTS = 768, 35  # three super-blocks, and no whole number of lanes
DTYPES = [torch.float32, torch.bfloat16]
SCALES_AND_MINIMUMS = (0, 2)
SCALE_BYTES = {  # of half floats, if not only 0
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), SCALES_AND_MINIMUMS),
    "Q6_K": (208,),
}
needs_kernels = pytest.mark.usefixtures("native_library")


def stored(name: str, outputs: int = OUTPUTS, seed: int = 1, inputs: int = INPUTS) -> tuple[StoredBlocks, torch.Tensor]:
    """Random blocks, and the numbers that the package gguf reads from them."""
    random, kind = numpy.random.default_rng(seed), PACKED_FORMATS[name]
    blocks = random.integers(0, 256, (outputs, inputs // kind.block_inputs, kind.block_bytes), dtype=numpy.uint8)
    for first in SCALE_BYTES.get(name, (0,)):
        scales = (random.standard_normal(blocks.shape[:2]) * 0.01).astype(numpy.float16)
        blocks[..., first : first + 2] = scales[..., None].view(numpy.uint8)
    rows = torch.from_numpy(blocks.reshape(outputs, -1))
    numbers = gguf_dequantize(rows.numpy(), GGMLQuantizationType[name])
    return StoredBlocks(name, (outputs, inputs), lambda first, last: rows[first:last]), torch.from_numpy(numbers)


def activations(dtype: torch.dtype, count: int = 19, inputs: int = INPUTS) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.full
@needs_kernels
@each_row("name", PACKED_FORMATS)
def test_a_packed_weight_has_the_numbers_that_the_package_gguf_reads(kernels: NativeKernels, name):
    blocks, numbers = stored(name, outputs=1100)  # packed in three parts

    read = PackedLinear((pack(blocks, kernels),), None, INPUTS, packed_kernels(kernels))(torch.eye(INPUTS)).T

    sizes = PACKED_FORMATS[name].block_inputs, PACKED_FORMATS[name].block_bytes
    assert GGML_QUANT_SIZES[GGMLQuantizationType[name]] == sizes
    assert torch.allclose(read, numbers, rtol=1e-6, atol=0)


@needs_kernels
@each_row("name", PACKED_FORMATS)
def test_a_packed_weight_takes_the_bytes_of_the_file(kernels: NativeKernels, name):
    blocks, _numbers = stored(name, outputs=64)  # whole lanes

    in_file = blocks.read_rows(0, 64).numel()

    assert in_file <= pack(blocks, kernels).weight.numel() <= 1.03 * in_file  # scales of 6 bits take 8


@needs_kernels
@each_row("name", PACKED_FORMATS)
def test_the_number_of_threads_does_not_change_what_is_packed(kernels: NativeKernels, name):
    blocks, _numbers = stored(name, outputs=700)

    one, *many = with_threads(lambda: pack(blocks, kernels).weight)

    assert all(torch.equal(one, other) for other in many)


@needs_kernels
def test_inputs_that_are_no_whole_blocks_are_not_packed(kernels: NativeKernels):
    rows = torch.zeros(64, 2 * PACKED_FORMATS["Q4_K"].block_bytes, dtype=torch.uint8)

    with pytest.raises(NativeBorderError, match="576 inputs"):
        pack(StoredBlocks("Q4_K", (64, 576), lambda first, last: rows[first:last]), kernels)


@needs_kernels
def test_a_weight_on_huge_pages_has_the_bytes_of_one_on_small_pages(kernels: NativeKernels, monkeypatch):
    blocks, _numbers = stored("Q6_K", outputs=700)
    small = pack(blocks, kernels).weight
    monkeypatch.setattr(packed_module, "HUGE_PAGE_BYTES", 1)

    assert torch.equal(small, pack(blocks, kernels).weight)


@needs_kernels
def test_a_system_without_huge_pages_packs_weights_all_the_same(kernels: NativeKernels, monkeypatch):
    monkeypatch.setattr(packed_module, "HUGE_PAGE_BYTES", 1)
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    blocks, _numbers = stored("Q4_0")

    assert pack(blocks, kernels).weight.dtype == torch.uint8


@each_row("dtype", DTYPES)
def test_floats_in_blocks_of_8_bits_are_rounded_to_half_a_step(dtype):
    weight = torch.cat((activations(dtype), torch.zeros(1, INPUTS, dtype=dtype), activations(dtype) * 1e-9))

    numbers = dequantize(blocks_of_8_bits(WeightSource.from_tensor(weight))).view(-1, 32)

    groups = weight.float().view(-1, 32)
    steps = groups.abs().amax(dim=1, keepdim=True) / 127
    assert bool(((numbers - groups).abs() <= steps * 0.57 + 1e-8).all())  # the scale is rounded, too


@needs_kernels
@each_row("name", PACKED_FORMATS)
def test_one_large_number_of_a_group_does_not_round_the_others(kernels: NativeKernels, name):
    blocks, numbers = stored(name)
    rows = activations(torch.float32)
    for row, column in enumerate(range(0, INPUTS, 41)):
        rows[row % len(rows), column] = 300.0 * (-1) ** row

    out = PackedLinear((pack(blocks, kernels),), None, INPUTS, packed_kernels(kernels))(rows)

    others = torch.where(rows.abs() == 300.0, 0.0, rows)
    assert (out - rows @ numbers.T).norm() < 0.02 * (others @ numbers.T).norm()


@needs_kernels
def test_large_numbers_at_shared_and_at_other_inputs_are_the_same_in_every_batch(kernels: NativeKernels):
    blocks, numbers = stored("Q4_K")
    linear, rows = (
        PackedLinear((pack(blocks, kernels),), None, INPUTS, packed_kernels(kernels)),
        activations(torch.float32),
    )
    rows[:, 5] = -300.0
    rows[torch.arange(len(rows)), 37 * torch.arange(len(rows)) + 40] = 300.0

    out = linear(rows)

    expected = rows.double() @ numbers.double().T
    assert (out.double() - expected).norm() < 1e-3 * expected.norm()
    assert all(torch.equal(linear(rows[-count:]), out[-count:]) for count in (1, 2, 3, 4, 7, 8, 13))


@needs_kernels
@each_row("inputs", [INPUTS, INPUTS + 8])
def test_a_float_layer_in_blocks_of_8_bits_is_near_the_float_result(inputs):
    weight, bias = torch.randn(OUTPUTS, inputs), torch.randn(OUTPUTS)
    rows = torch.randn(3, inputs)

    layer = quant_linear(WeightSource.from_tensor(weight), BLOCKS_OF_8_BITS, bias)

    assert isinstance(layer, PackedLinear) == (inputs == INPUTS)  # whole groups only
    assert torch.allclose(layer(rows), rows @ weight.T + bias, atol=0.1 * inputs**0.5)


@needs_kernels
@each_row("dtype", DTYPES)
@each_row("name", PACKED_FORMATS)
def test_a_row_is_near_the_float_result_and_the_same_in_every_batch(kernels: NativeKernels, name, dtype):
    blocks, numbers = stored(name)
    linear, rows = PackedLinear((pack(blocks, kernels),), None, INPUTS, packed_kernels(kernels)), activations(dtype)

    out = linear(rows)

    expected = rows.double() @ numbers.double().T
    assert (out.double() - expected).norm() < 0.01 * expected.norm()
    for count in (1, 2, 3, 4, 7, 8, 13):
        assert torch.equal(linear(rows[-count:]), out[-count:]), count


@needs_kernels
@each_row("groups", [1, 3, 18])  # of 32 inputs; CPUs with tiles multiply four together
@each_row("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_any_number_of_groups_is_multiplied(kernels: NativeKernels, name, groups):
    inputs = 32 * groups
    blocks, numbers = stored(name, inputs=inputs)
    linear = PackedLinear((pack(blocks, kernels),), None, inputs, packed_kernels(kernels))
    rows = activations(torch.float32, 19, inputs)

    out = linear(rows)

    expected = rows.double() @ numbers.double().T
    assert (out.double() - expected).norm() < 0.02 * expected.norm()
    assert all(torch.equal(linear(rows[:count]), out[:count]) for count in (1, 5, 16))


@needs_kernels
@pytest.mark.parametrize("name", PACKED_FORMATS)
def test_a_row_has_the_bits_that_an_older_cpu_with_as_many_lanes_computes(kernels: NativeKernels, name, request):
    blocks, _numbers = stored(name)
    rows = activations(torch.float32)
    if kernels.lanes != native_kernels().lanes or request.node.callspec.params["kernels"] == "DEFAULT":
        pytest.skip("sums of other lanes, and of CPUs that do not multiply and add in one step, are rounded otherwise")

    results = [
        PackedLinear((pack(blocks, each),), None, INPUTS, packed_kernels(each))(rows)
        for each in (kernels, native_kernels())
    ]

    assert torch.equal(*results)


@needs_kernels
def test_activations_of_whole_numbers_are_multiplied_exactly():
    """8 bits hold whole numbers up to 127, so nothing but the order of a few sums is left to differ."""
    blocks, numbers = stored("Q8_0")
    rows = torch.randint(-127, 128, (4, INPUTS), generator=torch.Generator().manual_seed(4)).float()
    rows[:, ::32] = 127.0  # the largest number of each group
    linear = packed_linear([blocks], torch.float32)
    assert linear is not None

    assert torch.allclose(linear(rows).double(), rows.double() @ numbers.double().T, rtol=1e-5, atol=1e-3)


@needs_kernels
@each_row("name", PACKED_FORMATS)
def test_sums_of_the_largest_products_do_not_overflow(kernels: NativeKernels, name):
    """Where they are added in 16 bits."""
    kind = PACKED_FORMATS[name]
    blocks = numpy.full((OUTPUTS, INPUTS // kind.block_inputs, kind.block_bytes), 255, dtype=numpy.uint8)
    for first in SCALE_BYTES.get(name, (0,)):
        blocks[..., first : first + 2] = numpy.array([0.01], dtype=numpy.float16).view(numpy.uint8)
    stored_rows = torch.from_numpy(blocks.reshape(OUTPUTS, -1))
    numbers = torch.from_numpy(gguf_dequantize(stored_rows.numpy(), GGMLQuantizationType[name]))
    packed = pack(StoredBlocks(name, (OUTPUTS, INPUTS), lambda first, last: stored_rows[first:last]), kernels)
    linear = PackedLinear((packed,), None, INPUTS, packed_kernels(kernels))
    rows = torch.full((9, INPUTS), 127.0)
    rows[::2] *= -1

    assert torch.allclose(linear(rows).double(), rows.double() @ numbers.double().T, rtol=1e-5)


@needs_kernels
@each_row("dtype", DTYPES)
def test_weights_of_several_formats_are_one_layer_with_a_bias(dtype):
    parts = [stored("Q4_K", 48)[0], stored("Q6_K", 16, seed=2)[0], stored("Q4_1", 21, seed=3)[0]]
    bias, rows = torch.arange(85.0).to(dtype), activations(dtype)
    fused = packed_linear(parts, dtype, bias)
    alone = [
        packed_linear([part], dtype, bias[start:][: part.shape[0]])
        for part, start in zip(parts, (0, 48, 64), strict=True)
    ]
    assert fused is not None

    assert torch.equal(fused(rows), torch.cat([linear(rows) for linear in alone if linear], dim=1))


@needs_kernels
def test_the_number_of_threads_changes_no_bit():
    linear, rows = packed_linear([stored("Q4_0", 1000)[0]], torch.bfloat16), activations(torch.bfloat16, 5)
    assert linear is not None
    results = with_threads(lambda: linear(rows))

    assert all(torch.equal(each, results[0]) for each in results)


@needs_kernels
def test_a_row_of_zeros_is_zero_and_large_numbers_stay_finite():
    linear = packed_linear([stored("Q4_0")[0]], torch.float32)
    assert linear is not None

    assert not linear(torch.zeros(1, INPUTS)).any()
    assert linear(torch.full((1, INPUTS), 1e30)).isfinite().all()


@needs_kernels
def test_a_format_without_a_kernel_has_no_packed_layer():
    blocks = stored("Q8_0")[0]

    assert packed_linear([blocks, StoredBlocks("IQ4_XS", blocks.shape, blocks.read_rows)], torch.float32) is None


@needs_kernels
def test_rows_of_another_width_never_reach_the_kernel():
    linear = packed_linear([stored("Q4_0")[0]], torch.float32)
    assert linear is not None

    with pytest.raises(NativeBorderError, match="rows of 767"):
        linear(torch.zeros(1, INPUTS - 1))
    with pytest.raises(NativeBorderError, match="float16"):
        linear(torch.zeros(1, INPUTS).half())


@needs_kernels
def test_one_layer_multiplies_rows_of_every_dtype():
    """The passes of a network that computes in bfloat16 are tried in float32."""
    linear, rows = packed_linear([stored("Q8_0")[0]], torch.bfloat16), activations(torch.bfloat16)
    assert linear is not None

    assert torch.equal(linear(rows.float()).bfloat16(), linear(rows))


def test_a_kernel_with_wrong_results_is_not_used():
    class Broken(NativeKernels):
        def kernel(self, name, dtype):
            return lambda *_arguments: None

    library = native_kernels().library

    assert library is None or not packed_kernels(Broken(library))
