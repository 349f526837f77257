"""Which experts a row asks, and what it makes of their answers."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.heads.moe import MixtureOfExperts, select_experts
from specchat.heads.spec import SIGMOID, SOFTMAX, Routing
from specchat.models.tensor_files import TensorFiles, WeightLoader

NETWORK = ("gate", "up", "down")


def chosen(scores: list[float], routing: Routing, correction: list[float] | None = None) -> dict[int, float]:
    """The weight of every expert that a row with these scores asks."""
    found = select_experts(torch.tensor([scores]), routing, None if correction is None else torch.tensor(correction))
    return dict(zip(found.experts[0].tolist(), found.weights[0].tolist(), strict=True))


def loader(folder: Path, tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> WeightLoader:
    save_file(tensors, folder / "x.safetensors")
    return WeightLoader(TensorFiles.from_files(folder, [folder / "x.safetensors"]), dtype, torch.device("cpu"))


def networks(count: int) -> dict[str, Tensor]:
    """Experts of which the k-th says k + 1 times what the first says, behind a router that sees nothing."""
    tensors = {"mlp.gate.weight": torch.zeros(count, 2)}
    for expert in range(count):
        at = f"mlp.experts.{expert}"
        tensors |= {f"{at}.{part}_proj.weight": torch.ones(4, 2) for part in ("gate", "up")}
        tensors[f"{at}.down_proj.weight"] = torch.full((2, 4), float(expert + 1))
    return tensors


def test_a_correction_chooses_and_does_not_weigh():
    routing = Routing(SIGMOID, experts_per_token=1, is_topk_normalized=False)

    assert chosen([2.0, 0.0], routing).keys() == {0}
    assert chosen([2.0, 0.0], routing, correction=[0.0, 1.0]) == {1: 0.5}


def test_groups_are_as_good_as_their_best_two():
    routing = Routing(SIGMOID, experts_per_token=2, expert_groups=2, topk_groups=1)

    assert chosen([9.0, -9.0, 1.0, 1.0], routing).keys() == {2, 3}
    assert chosen([9.0, -9.0, 1.0, 1.0], Routing(SIGMOID, experts_per_token=2)).keys() == {0, 2}


def test_weights_add_up_before_they_are_scaled():
    scores = [3.0, 2.0, 1.0]

    assert (
        abs(sum(chosen(scores, Routing(SIGMOID, experts_per_token=2, routed_scaling_factor=2.5)).values()) - 2.5) < 1e-6
    )
    assert abs(sum(chosen(scores, Routing(SOFTMAX, experts_per_token=2)).values()) - 1) < 1e-6
    assert sum(chosen(scores, Routing(SOFTMAX, experts_per_token=2, is_topk_normalized=False)).values()) < 0.95


def test_the_choice_is_made_in_full_precision_whatever_the_head_runs_in(tmp_path: Path):
    tensors = networks(2) | {"mlp.gate.e_score_correction_bias": torch.tensor([1.0, 1.001])}  # one number in bfloat16
    mixture = MixtureOfExperts(Routing(SIGMOID, experts_per_token=1), loader(tmp_path, tensors, torch.bfloat16), "mlp")

    answers = mixture(torch.ones(3, 2, dtype=torch.bfloat16))

    assert answers.dtype == torch.bfloat16
    assert torch.allclose(answers.float(), 2 * mixture_of_one(tmp_path).float(), rtol=0.02)


def mixture_of_one(folder: Path) -> Tensor:
    """What the first expert says by itself."""
    mixture = MixtureOfExperts(
        Routing(SIGMOID, experts_per_token=1), loader(folder, networks(1), torch.bfloat16), "mlp"
    )
    return mixture(torch.ones(3, 2, dtype=torch.bfloat16))


def test_stacked_experts_say_what_named_ones_say(tmp_path: Path):
    named, routing, rows = networks(3), Routing(SOFTMAX, experts_per_token=2), torch.randn(5, 2)
    named["mlp.gate.weight"] = torch.randn(3, 2)
    parts = {part: [named[f"mlp.experts.{index}.{part}_proj.weight"] for index in range(3)] for part in NETWORK}
    stacked = {
        "mlp.gate.weight": named["mlp.gate.weight"],
        "mlp.experts.gate_up_proj": torch.cat((torch.stack(parts["gate"]), torch.stack(parts["up"])), dim=1),
        "mlp.experts.down_proj": torch.stack(parts["down"]),
    }

    one, other = (MixtureOfExperts(routing, loader(tmp_path, tensors), "mlp")(rows) for tensors in (named, stacked))

    assert torch.allclose(one, other, atol=1e-6)
