"""AWQ and GPTQ checkpoints hold the numbers of their formula, and what cannot be read is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.weights.int4_checkpoints import Int4TensorFiles, int4_scheme
from specchat.weights.llama_weights import load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.weights.four_bits import LAYOUTS, quantized, save_network

CPU = torch.device("cpu")


def files(folder: Path, layout: str, group_size: int, shape: tuple[int, int] = (40, 200)):
    """A matrix in 4 bits, and its floats."""
    to_tensors, config = LAYOUTS[layout]
    torch.manual_seed(1)
    weight = quantized(torch.randn(shape), group_size if group_size > 0 else shape[1])
    save_file({f"x.{part}": each for part, each in to_tensors(weight).items()}, folder / "x.safetensors")
    scheme = int4_scheme(config | {"group_size": group_size}, folder)
    read = Int4TensorFiles.from_files(folder, [folder / "x.safetensors"])
    return replace(read, scheme=scheme, dtype=torch.float32), weight.floats


def logits(folder: Path) -> torch.Tensor:
    model = load_llama(folder, torch.float32, CPU, None, BatchLimits())
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 20):
        return model.forward(DraftTree(7), cache).logits


@each_row("group_size", [16, 32, 64, 128, -1])
@each_row("layout", LAYOUTS)
def test_a_weight_is_number_less_zero_point_times_scale(tmp_path, layout, group_size):
    read, floats = files(tmp_path, layout, group_size)

    assert read.shape("x.weight") == (40, 200)
    assert "x.weight" in read
    assert torch.equal(read.read_tensor("x.weight"), floats)
    assert torch.equal(read.read_rows("x.weight", 3, 17), floats[3:17])


@each_row("dtype", [torch.float16, torch.bfloat16])
def test_a_number_is_rounded_once(tmp_path, dtype):
    read, floats = files(tmp_path, "awq", 64)

    assert torch.equal(replace(read, dtype=dtype).read_tensor("x.weight"), floats.to(dtype))


@each_row("layout", LAYOUTS)
def test_a_network_in_four_bits_computes_what_its_floats_compute(tmp_path, layout):
    small, floats = save_network(tmp_path, layout)

    assert torch.equal(logits(small), logits(floats))


@each_row(
    "layout, change, message",
    [
        ("gptq", {"bits": 3}, "GPTQ with 3 bits is not supported, only with 4"),
        ("awq", {"bits": 8}, "AWQ with 8 bits is not supported, only with 4"),
        ("gptq", {"group_size": 48}, "GPTQ with groups of 48 inputs is not supported, only of 16, 32, 64"),
        ("awq", {"version": "gemv"}, "AWQ in the layout 'gemv' is not supported"),
        ("gptq", {"checkpoint_format": "marlin"}, "GPTQ in the layout 'marlin' is not supported"),
    ],
)
def test_other_formats_are_refused_in_one_line(tmp_path, layout, change, message):
    config = LAYOUTS[layout][1] | {"group_size": 32} | change

    with pytest.raises(ModelError) as refused:
        int4_scheme(config, tmp_path)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@each_row(
    "change, message",
    [
        ({"g_idx": torch.arange(200, dtype=torch.int32) % 7}, "act-order (desc_act) is not supported"),
        ({"qzeros": torch.zeros(2, 5, dtype=torch.int32)}, "x.qzeros is [2, 5] int32, and its weight has [7, 5]"),
        ({"scales": torch.ones(7, 8).half()}, "x.scales is [7, 8] float16, and its weight has [7, 40]"),
        ({"scales": torch.full((7, 40), torch.nan).half()}, "x.scales contains NaN or infinite values"),
        ({"qweight": torch.zeros(25, 40)}, "x.qweight is [25, 40] float32"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, change, message):
    files(tmp_path, "gptq", 32)
    stored = load_file(tmp_path / "x.safetensors") | {f"x.{part}": each for part, each in change.items()}
    save_file(stored, tmp_path / "x.safetensors")
    read = Int4TensorFiles.from_files(tmp_path, [tmp_path / "x.safetensors"])

    with pytest.raises(ModelError) as refused:
        replace(read, scheme=int4_scheme(LAYOUTS["gptq"][1] | {"group_size": 32}, tmp_path)).read_tensor("x.weight")

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_cpu_says_that_four_bits_become_sixteen(tmp_path, capsys):
    small, _floats = save_network(tmp_path, "awq")

    model = load_model(small, LoadOptions(dtype="bfloat16"))

    size = f"{model.bytes / 2**20:.1f} MiB in all"
    line = (
        f"small: 4-bit weights are dequantized to 16 bits, four times the memory ({size}); --weights nf4 keeps 4 bits"
    )
    assert line in capsys.readouterr().err
