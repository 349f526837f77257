"""FP8 weights are dequantized as transformers and plain arithmetic dequantize them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.drafters.heads.load_head import load_head
from specchat.errors import ModelError
from specchat.weights.fp8_checkpoints import Fp8TensorFiles, block_shape_from_config, is_supported_fp8
from specchat.weights.tensor_files import TensorFiles
from tests.drafters.published import CPU, inspected, logits_of, published
from tests.each_row import each_row
from tests.weights.eight_bits import LAYOUTS, as_one, by_output, compressed, in_blocks, spread


def files(folder: Path, weight: Tensor, scales: Tensor, ending: str = "_scale_inv") -> Fp8TensorFiles:
    save_file({"x.weight": weight, f"x.weight{ending}": scales, "y": torch.ones(2)}, folder / "x.safetensors")
    return Fp8TensorFiles.from_files(folder, [folder / "x.safetensors"])


def count_reads(monkeypatch) -> list[str]:
    """The tensors that are read as a whole from now on."""
    whole, stored = list[str](), TensorFiles.read_tensor

    def record(self: TensorFiles, name: str) -> Tensor:
        whole.append(name)
        return stored(self, name)

    monkeypatch.setattr(TensorFiles, "read_tensor", record)
    return whole


def in_eight_bits(golden, block=(128, 128)):
    """A head in DeepSeek's layout: matrices of the layer in FP8, all else unchanged."""
    changed = dict[str, Tensor]()
    for name, weight in golden.head.items():
        if re.search(r"(self_attn|mlp)\..*_proj.*\.weight$", name):
            changed[name], changed[f"{name}_scale_inv"] = in_blocks(weight, block)
    return changed


def test_weights_are_multiplied_by_their_scales_as_in_transformers(tmp_path: Path):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    small, scales = in_blocks(torch.randn(256, 384))

    read = files(tmp_path, small, scales).read_tensor("x.weight")

    assert torch.equal(read, Fp8Dequantize(None)._dequantize_one(small, scales))
    assert read.dtype == torch.float32


def test_the_last_blocks_may_be_smaller(tmp_path: Path):
    weight = torch.randn(576, 200)  # as the 512 + 64 rows of kv_a_proj_with_mqa are

    read = files(tmp_path, *in_blocks(weight)).read_tensor("x.weight")

    assert torch.allclose(read, weight, rtol=0.07, atol=0.01)
    assert float((read - weight).abs().max()) > 1e-4


def test_a_tensor_without_scales_is_read_unchanged(tmp_path: Path):
    assert files(tmp_path, *in_blocks(torch.randn(4, 4))).read_tensor("y").tolist() == [1, 1]


def test_scales_are_renamed_with_their_weight(tmp_path: Path):
    before = replace(files(tmp_path, *in_blocks(torch.randn(4, 4), (2, 2))), block_shape=(2, 2))

    after = before.renamed({"z": "x.weight", "z_scale_inv": "x.weight_scale_inv"})

    assert torch.equal(after.read_tensor("z"), before.read_tensor("x.weight"))


def test_scales_of_other_blocks_are_refused_with_both_shapes(tmp_path: Path):
    small, scales = in_blocks(torch.randn(200, 128))

    with pytest.raises(ModelError, match=r"\[200, 128\] in blocks of 128 x 128 has \[2, 1\] scales, .* \[1, 1\]"):
        files(tmp_path, small, scales[:1]).read_tensor("x.weight")


@each_row("first", [0, 100, 128, 200])
@each_row("quantize", [in_blocks, by_output, as_one])
def test_some_rows_equal_those_rows_of_the_whole(quantize, first, tmp_path: Path, monkeypatch):
    small, scales = quantize(torch.randn(300, 200))
    tensors = files(tmp_path, small, scales, "_scale")
    expected, whole = small.float() * spread(scales, small.shape), count_reads(monkeypatch)

    for last in (first + 1, first + 100):
        assert torch.equal(tensors.read_rows("x.weight", first, last), expected[first:last])

    assert "x.weight" not in whole
    assert torch.equal(tensors.read_rows("x.weight", 0, 300), expected)
    assert torch.equal(tensors.read_tensor("x.weight"), expected)


def test_weights_are_dequantized_to_the_required_dtype(tmp_path: Path):
    small, scales = by_output(torch.randn(100, 40))

    read = replace(files(tmp_path, small, scales, "_scale"), dtype=torch.bfloat16).read_tensor("x.weight")

    assert read.dtype == torch.bfloat16
    assert torch.equal(read, (small.float() * scales).bfloat16())


@each_row("ending", ["_scale", "_scale_inv"])
@each_row("shape", [[], [1]])
def test_one_scale_is_for_all(shape, ending, tmp_path: Path):
    small, scale = as_one(torch.randn(200, 300))

    read = files(tmp_path, small, scale.view(shape), ending).read_tensor("x.weight")

    assert torch.equal(read, small.float() * scale)


@each_row("quantize", [in_blocks, by_output])
def test_scales_of_every_layout_are_read_as_transformers_reads_them(quantize, tmp_path: Path):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    small, scales = quantize(torch.randn(256, 384))

    read = files(tmp_path, small, scales.bfloat16(), "_scale").read_tensor("x.weight")

    assert torch.equal(read.bfloat16(), Fp8Dequantize(None)._dequantize_one(small, scales.bfloat16()))


@each_row("shape", [(200,), (1, 128), (2, 2), (1, 1), (200, 2)])
def test_scales_of_another_shape_are_refused_in_one_line(shape, tmp_path: Path):
    small, _scales = by_output(torch.randn(200, 128))
    found = files(tmp_path, small, torch.ones(shape), "_scale")

    for read in (lambda: found.read_tensor("x.weight"), lambda: found.read_rows("x.weight", 3, 5)):
        with pytest.raises(ModelError, match=r"x\.weight \[200, 128\] .* the file holds \[[\d, ]+\]\Z"):
            read()


def test_fp8_weights_without_scales_are_refused(tmp_path: Path):
    found = files(tmp_path, *by_output(torch.randn(4, 4)), "_other")

    assert not found.has_scaled_weights
    with pytest.raises(ModelError, match=r"x\.weight is in float8_e4m3fn, and no file holds its scales"):
        found.read_rows("x.weight", 0, 2)


@each_row("weight, scales", [(torch.int8, torch.float32), (torch.float8_e4m3fn, torch.uint8)])
def test_integers_are_refused_with_their_dtype(weight, scales, tmp_path: Path):
    found = files(tmp_path, torch.ones(4, 4).to(weight), torch.ones(4, 1).to(scales), "_scale")

    with pytest.raises(ModelError, match=r"x\.weight is in int8, which|scales of x\.weight are in uint8"):
        found.read_tensor("x.weight")


def test_wider_floats_are_not_scaled_again(tmp_path: Path):
    """A checkpoint that was rounded and stored as floats has scales, too."""
    found = files(tmp_path, torch.ones(4, 4).bfloat16(), torch.full((4, 1), 3.0), "_scale")

    assert torch.equal(found.read_tensor("x.weight"), torch.ones(4, 4).bfloat16())


@each_row("layout", LAYOUTS)
def test_published_layouts_are_recognised_by_their_config(layout):
    assert is_supported_fp8(LAYOUTS[layout].quantization_config)
    assert block_shape_from_config(LAYOUTS[layout].quantization_config) == LAYOUTS[layout].block


@each_row(
    "quantization_config",
    [
        "mxfp4", {"quant_method": "gptq", "bits": 4}, {"quant_method": "awq"}, {"load_in_4bit": True},
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        compressed("tensor") | {"format": "pack-quantized"}, compressed("tensor") | {"format": "nvfp4-pack-quantized"},
        compressed("tensor") | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {"quant_method": "fp8", "kv_cache_scheme": "static"},
        compressed("tensor") | {"sparsity_config": {"format": "sparse-24-bitmask"}},
        compressed("tensor") | {"transform_config": {"config_groups": {}, "kind": "hadamard"}},
        compressed("group", group_size=32), compressed("tensor", num_bits=4), compressed("tensor", type="int"),
        compressed("channel", symmetric=False), compressed("tensor") | {"config_groups": ["?"]},
        compressed("tensor") | {"config_groups": {"group_0": "?"}}, {"quant_method": "fp8", "sparsity_config": "?"},
    ],
)  # fmt: skip
def test_weights_that_need_more_than_scales_are_left_to_transformers(quantization_config):
    assert not is_supported_fp8(quantization_config)


def test_the_config_defines_the_block_shape():
    assert block_shape_from_config({}) == (128, 128)
    assert block_shape_from_config({"quant_method": "fp8", "weight_block_size": [64, 32]}) == (64, 32)
    assert block_shape_from_config(compressed("block", block_structure=[1, 64])) == (1, 64)


@each_row("block", [[0, 128], [128], 128, "all"])
def test_impossible_blocks_raise_a_one_line_value_error(block):
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        block_shape_from_config({"quant_method": "fp8", "weight_block_size": block})


@each_row("block", [(0, 128), (128,), "all"])
def test_impossible_blocks_of_a_head_are_a_one_line_error(block, tmp_path: Path):
    golden = published("mtp-deepseek")

    with pytest.raises(ModelError, match=r"config\.json has an invalid value"):
        inspected(golden, tmp_path, head=in_eight_bits(golden), quantization_config={"weight_block_size": block})


@each_row("block", [(128, 128), (4, 6)])
def test_an_fp8_head_computes_nearly_the_same_logits(block, tmp_path: Path):
    golden = published("mtp-deepseek")
    spec = inspected(
        golden, tmp_path, head=in_eight_bits(golden, block), quantization_config={"weight_block_size": block}
    )

    first, _second = logits_of(spec, golden)

    expected = golden.given["first"]
    assert 1e-4 < float((first - expected).abs().max() / expected.abs().max()) < 0.15
    assert any("7 of its matrices are stored in 8 bits" in line for line in spec.evidence)


def test_fp8_experts_are_loaded_in_the_dtype_of_the_target(tmp_path: Path):
    golden = published("mtp-qwen3_next-experts")

    head = load_head(inspected(golden, tmp_path, head=in_eight_bits(golden)), golden.target, torch.bfloat16, CPU)

    wide = load_head(inspected(golden, tmp_path / "wide"), golden.target, torch.bfloat16, CPU)
    assert head.bytes == wide.bytes


def test_another_quantization_is_named_in_the_reason(tmp_path: Path):
    scale = {"model.layers.3.self_attn.o_proj.weight_scale": torch.ones(16, 1)}

    spec = inspected(published("mtp-deepseek"), tmp_path, head=scale)

    assert spec.unsupported_reason == "quantized weights that are not blocks of 8 bits"
