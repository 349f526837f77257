"""The embedded models: they load, they are small, they copy, and every drafter is better than chance."""

from pathlib import Path

import pytest
import torch

import specchat
from recipes.acceptance_by_position import Answer
from recipes.dialogues import fenced
from recipes.embedded_models import load_embedded_models
from recipes.evaluate import measure_drafters
from recipes.writer import TargetGenerator

EMBEDDED = Path(specchat.__file__).parent / "embedded"
CODE = """def total_price(items, rate=3):
    result = 0
    for item in items:
        if item.price > rate:
            result = result + item.price
    return result
"""


@pytest.fixture(scope="module")
def generator():
    return TargetGenerator(EMBEDDED / "target")


@pytest.fixture(scope="module")
def embedded():
    return load_embedded_models(EMBEDDED)


def test_all_embedded_models_take_at_most_64_mebibytes():
    files = [path for path in EMBEDDED.rglob("*") if path.is_file() and "work" not in path.parts]

    assert sum(path.stat().st_size for path in files) <= 64 * 2**20


def test_the_target_equals_that_of_transformers(embedded):
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(EMBEDDED / "target", dtype=torch.float32)
    tokens = torch.arange(100, 160)[None]

    with torch.no_grad():
        ours = embedded.target.logits(embedded.target(tokens)[-1])
        assert torch.allclose(theirs(tokens).logits, ours, atol=1e-3)


def test_the_target_repeats_given_code(generator):
    (answer,) = generator.generate([generator.prompt(f"Repeat this code.\n\n{fenced(CODE)}")], 150)

    assert fenced(CODE) == generator.decode(answer)


def test_the_drafters_are_far_better_than_chance(generator, embedded):
    prompt = generator.prompt(f"Repeat this code.\n\n{fenced(CODE)}")
    (answer,) = generator.generate([prompt], 150)

    measured = measure_drafters(embedded, [Answer([*prompt, *answer], len(prompt))])

    assert measured["eagle3"].by_position[0] > 0.3
    assert measured["eagle"].by_position[0] > 0.3
    assert measured["draft"].by_position[0] > 0.3
    assert measured["mtp"].by_position[0] > 0.3
    assert measured["medusa"].by_position[0] > 0.1
