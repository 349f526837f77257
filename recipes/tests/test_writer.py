"""The evaluation decodes with the engine: the text is that of transformers, with every drafter."""

from pathlib import Path

import pytest
import torch

import specchat
from recipes.dialogues import fenced
from recipes.engine_acceptance import HEADS, drafter_factories, measure_in_engine
from recipes.writer import TargetGenerator
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler

EMBEDDED = Path(specchat.__file__).parent / "embedded"
CODE = """def total_price(items, rate=3):
    result = 0
    for item in items:
        result = result + item.price * rate
    return result
"""
QUESTIONS = (f"Rename `result` to `total`.\n\n{fenced(CODE)}", "What is a generator?")


@pytest.fixture(scope="module")
def writer():
    return TargetGenerator(EMBEDDED / "target")


@pytest.mark.full
def test_answers_are_those_of_transformers(writer):
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(EMBEDDED / "target", dtype=torch.float32)

    for question in QUESTIONS:
        prompt = writer.prompt(question)
        written = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=60, do_sample=False, eos_token_id=writer.end_id, pad_token_id=5
        )[0, len(prompt) :].tolist()
        expected = written[: written.index(writer.end_id)] if writer.end_id in written else written
        assert [expected] == writer.generate([prompt], 60)


def test_an_answer_without_a_stop_token_has_the_maximum_length(writer):
    assert 5 == len(writer.generate([writer.prompt(QUESTIONS[0])], 5)[0])


@pytest.mark.full
def test_every_drafter_gives_the_text_of_plain_decoding_in_fewer_steps(writer):
    prompt, sampler = writer.prompt(f"Repeat this code.\n\n{fenced(CODE)}"), Sampler(0.8, seed=4)
    plain = writer.generate_with_drafter(Drafter(), prompt, 30, sampler)
    found = drafter_factories(EMBEDDED, writer.target)

    assert {"lookup", "suffix", "draft", "exit"} <= found.keys() <= {"lookup", "suffix", "draft", "exit", *HEADS}
    for name, maker in found.items():
        drafted = writer.generate_with_drafter(maker(), prompt, 30, sampler)
        assert plain.tokens == drafted.tokens, name
        assert len(plain.steps) > len(drafted.steps), name


@pytest.mark.full
def test_a_drafter_in_the_engine_is_measured_over_all_answers(writer):
    prompts = [writer.prompt(question) for question in QUESTIONS]
    acceptance = measure_in_engine(writer, drafter_factories(EMBEDDED, writer.target)["draft"], prompts, 0.0)
    plain = measure_in_engine(writer, Drafter, prompts[1:], 0.0)

    assert acceptance.tokens_per_step > 1.5
    assert all(share is not None and 0.0 < share <= 1.0 for share in acceptance.by_depth)
    assert (1.0, (None,) * 4) == (plain.tokens_per_step, plain.by_depth)
