"""`auto` beside plain decoding with experts in a slow tier."""

import json

import pytest
import torch

from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import FloatLinear
from tools.instrument import run_instrument
from tools.slow_experts import CONFIG, FetchedLinear, slow_experts, slow_tier


def test_this_share_of_the_experts_waits_for_its_bytes():
    linears = [FloatLinear(torch.zeros(8, 8), None) for _ in range(5)]

    with slow_tier(0.6, 256e3):
        made = ExpertLinear.of(linears, 5, torch.float32, torch.device("cpu"))

    assert [each.seconds for each in made.experts if isinstance(each, FetchedLinear)] == [pytest.approx(1e-3)] * 3
    assert made.bytes == sum(each.bytes for each in linears)


@pytest.mark.full
def test_each_kind_has_a_row_and_the_same_texts(tmp_path, capsys):
    tiny = {"hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 8, "num_hidden_layers": 2, "head_dim": 16}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**CONFIG, **tiny, "vocab_size": 1000}))

    code = run_instrument(slow_experts, ["--config", str(config), "--count", "1", "--limit", "24"])

    cells = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert [row[1] for row in cells if row[-2] == "1 of 1"] == ["edit", "rewrite", "chat"]
    assert [row[1] for row in cells if row[1].isdigit()] == ["1", "2", "4", "8", "16"]
