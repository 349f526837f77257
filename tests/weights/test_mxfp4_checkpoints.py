"""gpt-oss in MXFP4 has the weights that transformers dequantizes, and runs in our own passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat.weights.mxfp4_checkpoints import Mxfp4TensorFiles
from tests.each_row import each_row
from tests.forward.test_families import TEXT, logits_after
from tests.tiny import saved

FILE = "model.safetensors"


def packed(experts: int, outputs: int, inputs: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(experts + outputs)
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=rng)
    return {"_blocks": blocks, "_scales": torch.randint(120, 128, blocks.shape[:3], dtype=torch.uint8, generator=rng)}


def files(folder: Path, tensors: dict[str, Tensor]) -> Mxfp4TensorFiles:
    save_file({f"x{part}": tensor for part, tensor in tensors.items()}, folder / FILE)
    return Mxfp4TensorFiles.from_files(folder, [folder / FILE])


def test_a_stack_has_the_numbers_of_transformers(tmp_path):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    parts = packed(3, 48, 64)
    read = files(tmp_path, parts)

    assert read.shape("x") == (3, 64, 48)
    expected = convert_moe_packed_tensors(parts["_blocks"], parts["_scales"])
    assert torch.equal(read.read_rows("x", 0, 3), expected)
    assert torch.equal(read.read_rows("x", 1, 2), expected[1:2])


def test_scales_of_another_stack_are_refused(tmp_path):
    damaged = packed(3, 48, 64) | {"_scales": torch.ones(3, 48, 1, dtype=torch.uint8)}

    with pytest.raises(ModelError, match="x_blocks and x_scales do not belong together"):
        files(tmp_path, damaged).read_rows("x", 0, 1)


@pytest.mark.full
@each_row("weights", ["float", "nf4"])
def test_a_checkpoint_runs_in_our_own_passes(tmp_path, weights, capsys):
    """As the same checkpoint with its experts as floats."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    outputs = {}
    for kind in ("packed", "float"):
        folder = tmp_path / kind
        folder.mkdir()
        config = json.loads((saved("gpt_oss") / "config.json").read_text())
        tensors = load_file(saved("gpt_oss") / FILE)
        for name in [each for each in tensors if each.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            experts, inner_inputs, inner_outputs = tensors.pop(name).shape
            parts = packed(experts, inner_outputs, inner_inputs)
            dequantized = convert_moe_packed_tensors(parts["_blocks"], parts["_scales"], dtype=torch.float32)
            stored = {f"{name}{part}": tensor for part, tensor in parts.items()}
            tensors |= stored if kind == "packed" else {name: dequantized.contiguous()}
        save_file(tensors, folder / FILE)
        quantization = {"quantization_config": {"quant_method": "mxfp4"}} if kind == "packed" else {}
        (folder / "config.json").write_text(json.dumps(config | quantization))
        model = load_model(folder, LoadOptions(dtype="float32", device="cpu", quant_format=weights))
        assert isinstance(model, LlamaModel)
        outputs[kind] = logits_after(model, TEXT[:12], DraftTree(50))

    assert torch.equal(outputs["packed"], outputs["float"])
    assert ("--weights nf4 keeps 4 bits" in capsys.readouterr().err) == (weights == "float")
