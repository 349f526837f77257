"""Facts about the weights that ship: they load, they are small, they copy, and every drafter beats chance."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import specchat
from recipes.acceptance_by_position import Answer
from recipes.dialogues import fenced
from recipes.evaluate import measure_drafters
from recipes.writer import TargetGenerator
from specchat.train.load_trained import load_embedded_models

EMBEDDED = Path(specchat.__file__).parent / "embedded"
CODE = """def total_price(items, rate=3):
    result = 0
    for item in items:
        if item.price > rate:
            result = result + item.price
    return result
"""


@pytest.fixture(scope="module")
def writer():
    return TargetGenerator(EMBEDDED / "target")


@pytest.fixture(scope="module")
def shipped():
    return load_embedded_models(EMBEDDED)


def test_everything_together_is_at_most_64_mebibytes():
    files = [path for path in EMBEDDED.rglob("*") if path.is_file() and "work" not in path.parts]

    assert sum(path.stat().st_size for path in files) <= 64 * 2**20


def test_the_target_is_what_transformers_loads(shipped):
    theirs = AutoModelForCausalLM.from_pretrained(EMBEDDED / "target", dtype=torch.float32)
    tokens = torch.arange(100, 160)[None]

    with torch.no_grad():
        ours = shipped.target.logits(shipped.target(tokens)[-1])
        assert torch.allclose(theirs(tokens).logits, ours, atol=1e-3)


def test_the_trained_target_repeats_code_that_it_is_given(writer):
    (answer,) = writer.write([writer.prompt(f"Repeat this code.\n\n{fenced(CODE)}")], 150)

    assert fenced(CODE) == writer.decode(answer)


def test_the_trained_drafters_beat_chance_by_far(writer, shipped):
    prompt = writer.prompt(f"Repeat this code.\n\n{fenced(CODE)}")
    (answer,) = writer.write([prompt], 150)

    measured = measure_drafters(shipped, [Answer([*prompt, *answer], len(prompt))])

    assert measured["eagle3"].by_position[0] > 0.3
    assert measured["eagle"].by_position[0] > 0.3
    assert measured["draft"].by_position[0] > 0.3
    assert measured["mtp"].by_position[0] > 0.3
    assert measured["medusa"].by_position[0] > 0.1
