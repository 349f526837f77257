"""The routing of a mixture of experts, and its output."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.forward.fused_ops import AttentionDimensions, TorchOps, select_fused_ops
from specchat.forward.llama.moe import MixtureOfExperts, Routing
from specchat.weights.llama_families import ExpertNames
from specchat.weights.moe_weights import load_moe
from specchat.weights.tensor_files import TensorFiles, WeightLoader

MLP = ("gate", "up", "down")
OPS = TorchOps(AttentionDimensions(1, 1, 2, 1e-6))


def selected(scores: list[float], routing: Routing) -> dict[int, float]:
    """The weights of the selected experts of a row with these scores."""
    selection = routing.select(torch.tensor([scores]))
    return dict(zip(selection.experts[0].tolist(), selection.weights[0].tolist(), strict=True))


def loader(folder: Path, tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> WeightLoader:
    save_file(tensors, folder / "x.safetensors")
    return WeightLoader(TensorFiles.from_files(folder, [folder / "x.safetensors"]), dtype, torch.device("cpu"))


def mixture_of(source: WeightLoader, routing: Routing) -> MixtureOfExperts:
    return load_moe(source, "layers.0", ExpertNames(), routing, torch.float32)


def experts(count: int) -> dict[str, Tensor]:
    """Experts of which the k-th has k + 1 times the output of the first, and a router with equal scores."""
    tensors = {"layers.0.mlp.gate.weight": torch.zeros(count, 2)}
    for expert in range(count):
        at = f"layers.0.mlp.experts.{expert}"
        tensors |= {f"{at}.{part}_proj.weight": torch.ones(4, 2) for part in ("gate", "up")}
        tensors[f"{at}.down_proj.weight"] = torch.full((2, 4), float(expert + 1))
    return tensors


def test_the_weights_of_the_selected_experts_are_normalized():
    scores = [3.0, 2.0, 1.0]

    assert abs(sum(selected(scores, Routing(experts_per_token=2)).values()) - 1) < 1e-6
    assert sum(selected(scores, Routing(experts_per_token=2, is_topk_normalized=False)).values()) < 0.95


def test_routing_is_computed_in_float32_for_every_dtype(tmp_path: Path):
    tensors = experts(2)
    tensors["layers.0.mlp.gate.weight"] = torch.tensor([[1.0, 0.0], [1.0, 0.001]])  # products equal in bfloat16
    mixture = mixture_of(loader(tmp_path, tensors, torch.bfloat16), Routing(experts_per_token=1))

    outputs = mixture(torch.ones(3, 2, dtype=torch.bfloat16), OPS)

    assert outputs.dtype == torch.bfloat16
    assert torch.allclose(outputs.float(), 2 * output_of_first_expert(tmp_path).float(), rtol=0.02)


def output_of_first_expert(folder: Path) -> Tensor:
    mixture = mixture_of(loader(folder, experts(1), torch.bfloat16), Routing(experts_per_token=1))
    return mixture(torch.ones(3, 2, dtype=torch.bfloat16), OPS)


def test_stacked_experts_have_the_output_of_named_ones(tmp_path: Path):
    named, routing, rows = experts(3), Routing(experts_per_token=2), torch.randn(5, 2)
    named["layers.0.mlp.gate.weight"] = torch.randn(3, 2)
    parts = {part: [named[f"layers.0.mlp.experts.{index}.{part}_proj.weight"] for index in range(3)] for part in MLP}
    stacked = {
        "layers.0.mlp.gate.weight": named["layers.0.mlp.gate.weight"],
        "layers.0.mlp.experts.gate_up_proj": torch.cat((torch.stack(parts["gate"]), torch.stack(parts["up"])), dim=1),
        "layers.0.mlp.experts.down_proj": torch.stack(parts["down"]),
    }

    one, other = (mixture_of(loader(tmp_path, tensors), routing)(rows, OPS) for tensors in (named, stacked))

    assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("native_library")
def test_a_row_has_the_same_bits_however_many_rows_chose_its_experts(tmp_path: Path, dtype: torch.dtype):
    size, inner, count, rng = 70, 44, 12, torch.Generator().manual_seed(2)
    at, random = "layers.0.mlp", partial(torch.randn, generator=rng)
    tensors = {f"{at}.gate.weight": random(count, size), f"{at}.shared_expert_gate.weight": random(1, size)}
    for mlp in (*(f"experts.{expert}" for expert in range(count)), "shared_expert"):
        tensors |= {f"{at}.{mlp}.{part}_proj.weight": random(inner, size) for part in ("gate", "up")}
        tensors[f"{at}.{mlp}.down_proj.weight"] = random(size, inner)
    names = ExpertNames(shared="mlp.shared_expert")
    mixture = load_moe(loader(tmp_path, tensors, dtype), "layers.0", names, Routing(experts_per_token=8))
    ops = select_fused_ops(AttentionDimensions(1, 1, 2, 1e-6), torch.empty(0, dtype=dtype))
    rows = random(128, size).to(dtype)  # the largest draft tree

    together = mixture(rows, ops)

    for first, last in ((0, 1), (3, 4), (5, 12), (64, 128)):
        assert torch.equal(mixture(rows[first:last], ops), together[first:last])
