"""The plugin in an engine: its heads are loaded from a profile, its drafters draft, and the text stays."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
TOKEN_TABLES = {  # a row for each token
    "hydra": r"hydra_lm_head\.", "peagle": "embed_tokens", "dflash2": r".*codebook", "dspark": r"markov_head\.markov_w",
}  # fmt: skip


def head_of(kind: str, folder: Path) -> str:
    """A tiny head that knows as many tokens as a target that speaks."""
    import torch
    from safetensors.torch import load_file, save_file
    from torch.nn import functional

    from tests.tiny import SPEAKING
    from tests.tiny_heads import saved_head

    shutil.copytree(saved_head(kind), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": SPEAKING}))
    weights = load_file(folder / "model.safetensors")
    for name in filter(re.compile(TOKEN_TABLES[kind]).match, list(weights)):
        weights[name] = functional.pad(weights[name], (0, 0, 0, SPEAKING - len(weights[name])))
    if "t2d" in weights:
        inside = torch.zeros(SPEAKING, dtype=torch.bool)
        inside[: len(weights["t2d"])] = weights["t2d"]
        weights["t2d"] = inside
    save_file(weights, folder / "model.safetensors")
    return str(folder)


def test_its_drafters_draft_in_an_engine_and_the_text_is_that_of_plain_decoding(tmp_path):
    import plugin_heads  # noqa: F401 - adds the tiny heads

    from specchat.chat.request import Request
    from specchat.loading.load_engine import load_engine
    from specchat.profile.keys import Profile
    from tests.engine_answers import measure_answer
    from tests.tiny import speaking

    heads = [head_of(kind, tmp_path / kind) for kind in TOKEN_TABLES]
    profile = Profile().override({"models.target": str(speaking(3)), "models.draft": "", "models.heads": heads})
    engine = load_engine(profile)

    answers = {
        name: measure_answer(engine, Request("why", variant=name, max_tokens=12, temperature=0.8, seed=3))
        for name in ("plain", *TOKEN_TABLES)
    }

    assert {answers["plain"].text} == {answer.text for answer in answers.values()}
    assert set(TOKEN_TABLES) <= engine.variants
    assert set(TOKEN_TABLES) == set(engine.resources.heads)
    for name in TOKEN_TABLES:
        assert sum(len(step.draft_tokens) for step in answers[name].steps) > 0, name


@pytest.mark.full
def test_pip_installs_it_and_the_list_has_what_it_adds(tmp_path):
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    source = shutil.copytree(SOURCE, tmp_path / "source")
    made = subprocess.run([*PIP, "--target", tmp_path / "site", source], capture_output=True, text=True, check=False)
    assert 0 == made.returncode, made.stderr

    code = "import sys; sys.path.insert(0, sys.argv[1]); from specchat.cli.main import run; sys.exit(run(['plugins']))"
    listed = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "site"], capture_output=True, text=True, check=True, cwd=Path.cwd()
    ).stdout

    assert "heads (specchat-heads 0.1.0)" in listed
    assert all(f"--variant {name}" in listed and f"heads of {name}" in listed for name in TOKEN_TABLES)
