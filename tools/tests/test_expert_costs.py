"""The figures of mixtures of experts come from a command."""

import pytest

from tests.counting import config_file
from tools.expert_costs import main


@pytest.mark.full
def test_rows_of_one_token_share_their_experts_and_others_do_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    text = tmp_path / "text.md"
    text.write_text("Every word of this line is another one, and so are their tokens. " * 3)

    main([str(text), "--model-shape", str(config_file(tmp_path, "qwen3_moe")), "--rounds", "1"])

    cells = [line.split("|") for line in capsys.readouterr().out.splitlines()]
    experts = {(row[1].strip(), row[2].strip()): row[5].strip() for row in cells if len(row) > 5}
    assert experts["one token", "32"].startswith("2.0")
    assert experts["text", "1"] == experts["random tokens", "1"] == "2.0 ± 0.0"
    assert float(experts["random tokens", "16"].split()[0]) > 12
