"""Weights in eight bits mean what transformers and plain arithmetic make of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from specchat.errors import ModelError
from specchat.models.heads import load_head
from specchat.models.scaled import ScaledFiles
from specchat.models.weights import TensorFiles
from tests.models.published import CPU, inspected, logits_of, published


def shrunk(weight: Tensor, block: tuple[int, int] = (128, 128)) -> tuple[Tensor, Tensor]:
    """A matrix in eight bits, and the scales of its blocks: the largest number of a block becomes 448."""
    rows, columns = (-(-size // per) for size, per in zip(weight.shape, block, strict=True))
    small, scales = torch.empty(weight.shape, dtype=torch.float8_e4m3fn), torch.empty(rows, columns)
    for row in range(rows):
        for column in range(columns):
            here = (
                slice(row * block[0], (row + 1) * block[0]),
                slice(column * block[1], (column + 1) * block[1]),
            )
            scales[row, column] = weight[here].abs().max() / 448
            small[here] = (weight[here] / scales[row, column]).to(torch.float8_e4m3fn)
    return small, scales


def files(folder: Path, weight: Tensor, scales: Tensor) -> ScaledFiles:
    save_file({"x.weight": weight, "x.weight_scale_inv": scales, "y": torch.ones(2)}, folder / "x.safetensors")
    return ScaledFiles(folder, TensorFiles.of(folder, [folder / "x.safetensors"]).places)


def in_eight_bits(golden, block=(128, 128)):
    """A head as DeepSeek would publish it: matrices of the layer in eight bits, all else as it was."""
    changed = dict[str, Tensor]()
    for name, weight in golden.head.items():
        if re.search(r"(self_attn|mlp)\..*_proj.*\.weight$", name):
            changed[name], changed[f"{name}_scale_inv"] = shrunk(weight, block)
    return changed


def test_they_are_multiplied_with_their_scales_as_transformers_does(tmp_path: Path):
    small, scales = shrunk(torch.randn(256, 384))

    read = files(tmp_path, small, scales).read("x.weight")

    assert torch.equal(read, Fp8Dequantize(None)._dequantize_one(small, scales))
    assert read.dtype == torch.float32


def test_the_last_blocks_may_be_cut_off(tmp_path: Path):
    weight = torch.randn(576, 200)  # as the 512 + 64 rows of kv_a_proj_with_mqa are

    read = files(tmp_path, *shrunk(weight)).read("x.weight")

    assert torch.allclose(read, weight, rtol=0.07, atol=0.01)
    assert float((read - weight).abs().max()) > 1e-4


def test_what_has_no_scales_is_read_as_it_is(tmp_path: Path):
    assert files(tmp_path, *shrunk(torch.randn(4, 4))).read("y").tolist() == [1, 1]


def test_scales_go_where_their_weight_goes(tmp_path: Path):
    before = files(tmp_path, *shrunk(torch.randn(4, 4), (2, 2)))
    before = ScaledFiles(before.source, before.places, (2, 2))

    after = before.renamed({"z": "x.weight", "z_scale_inv": "x.weight_scale_inv"})

    assert torch.equal(after.read("z"), before.read("x.weight"))


def test_scales_for_other_blocks_are_refused_with_both_numbers(tmp_path: Path):
    small, scales = shrunk(torch.randn(200, 128))

    with pytest.raises(ModelError, match=r"\[200, 128\] in blocks of 128 x 128 has \[2, 1\] scales, .* \[1, 1\]"):
        files(tmp_path, small, scales[:1]).read("x.weight")


@pytest.mark.parametrize("block", [(0, 128), (128,), "all"], ids=str)
def test_blocks_that_cannot_be_are_one_line(block, tmp_path: Path):
    golden = published("mtp-deepseek_v3-plain")

    with pytest.raises(ModelError, match=r"config\.json says what cannot be"):
        inspected(golden, tmp_path, head=in_eight_bits(golden), quantization_config={"weight_block_size": block})


@pytest.mark.parametrize("block", [(128, 128), (4, 6)], ids=str)
def test_a_head_in_eight_bits_says_nearly_what_it_said(block, tmp_path: Path):
    golden = published("mtp-deepseek_v3-plain")
    spec = inspected(
        golden, tmp_path, head=in_eight_bits(golden, block), quantization_config={"weight_block_size": block}
    )

    first, _second = logits_of(spec, golden)

    wanted = golden.given["first"]
    assert 1e-4 < float((first - wanted).abs().max() / wanted.abs().max()) < 0.15
    assert any("7 of its matrices are kept in eight bits" in line for line in spec.evidence)


def test_experts_in_eight_bits_are_loaded_in_the_dtype_of_the_target(tmp_path: Path):
    golden = published("mtp-deepseek_v3")

    head = load_head(inspected(golden, tmp_path, head=in_eight_bits(golden)), golden.lender, torch.bfloat16, CPU)

    wide = load_head(inspected(golden, tmp_path / "wide"), golden.lender, torch.bfloat16, CPU)
    assert head.bytes == wide.bytes


def test_weights_made_small_in_another_way_are_called_by_their_name(tmp_path: Path):
    scale = {"model.layers.3.self_attn.o_proj.weight_scale": torch.ones(16, 1)}

    spec = inspected(published("mtp-deepseek_v3"), tmp_path, head=scale)

    assert spec.unsupported == "its weights are quantised, and not in blocks of eight bits"
