"""Guesses that hold as often as is said."""

import pytest

from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.profile.keys import Profile
from specchat_bench.chain_passes import MedianRange
from tests.counting import counting
from tools.pass_costs import load_models
from tools.synthetic_acceptance import OracleDrafter, OracleRow, as_table, measure_synthetic_acceptance

TEXT = list(range(300, 4300))


def guesses(chances, length, budget=8):
    return OracleDrafter(TEXT, chances).propose(DraftContext(TEXT[:length], Sampler(), budget)).tokens[1:]


def test_certain_guesses_are_the_text_and_impossible_ones_never():
    assert TEXT[5:8] == guesses([1, 1, 1], 5)
    assert not {TEXT[5], TEXT[6]} & set(guesses([0, 0], 5))


def test_guesses_hold_as_often_as_is_said():
    held = sum(guesses([0.7], at) == [TEXT[at]] for at in range(1, 3000))

    assert held / 3000 == pytest.approx(0.7, abs=0.03)


def test_no_more_is_guessed_than_the_budget():
    assert TEXT[5:7] == guesses([1] * 6, 5, budget=2)


def test_what_chains_bring_is_measured_beside_plain_decoding(tmp_path):
    profile = Profile().override({"models.target": str(counting(tmp_path)), "limits.context": 512, "limits.answer": 8})
    [subject], said = load_models(profile, ["float32"], 64, 0), []

    one, two = measure_synthetic_acceptance(subject, 64, [1, 0], max_tokens=12, rounds=1, progress=said.append)

    assert (2, 2) == (one.tokens_per_step, two.tokens_per_step)  # the second guess never holds
    assert one.speedup.lowest > 0
    assert said == ["float32, 64 tokens, synthetic acceptance: round 1"]


def test_the_prediction_is_tokens_by_costs():
    gain = OracleRow("bfloat16", 128, 4, 3.0, MedianRange.from_values([1.2]), MedianRange.from_values([2.0, 2.4, 2.2]))

    assert "| bfloat16 | 128 | 4 | 3.00 | 1.20 | 2.20 (2.00-2.40) | 2.50 |" in as_table([gain])
