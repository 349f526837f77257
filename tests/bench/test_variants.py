"""Every variant in one table: the same text, and honest columns."""

import pytest

from specchat.assemble import load_engine
from specchat.bench.variants import as_table, draft_tree_depth, measure_variants
from specchat.chat.events import StepDone
from specchat.chat.request import Request
from specchat.profile import Profile
from tests.tiny import speaking

PROMPTS = {"edit": [Request("abcabc abcabc abc")], "chat": [Request("why"), Request("how")]}


@pytest.fixture(scope="module")
def rows():
    folder = str(speaking())
    engine = load_engine(Profile().override({"models.target": folder, "models.draft": folder}))
    return list(measure_variants(engine, ["plain", "lookup", "draft"], PROMPTS, [0.0, 0.8], max_tokens=12))


def test_each_variant_has_a_row_for_each_kind_and_temperature(rows):
    assert 3 * 2 * 2 == len(rows)
    assert all(row.same_text == len(row.answers) == len(PROMPTS[row.kind]) for row in rows)


def test_a_draft_that_is_the_target_is_always_right(rows):
    greedy = [row for row in rows if row.variant == "draft" and row.temperature == 0]

    assert all(1.0 == row.acceptance_at(1) for row in greedy)
    assert all(row.tokens_per_pass > 2 for row in greedy)
    assert all(row.draft_cost > 0 for row in greedy)


def test_plain_guesses_nothing(rows):
    plain = next(row for row in rows if row.variant == "plain")

    assert 1.0 == plain.tokens_per_pass
    assert plain.acceptance_at(1) is None


def test_a_variant_that_cannot_run_says_why_below_the_table():
    engine = load_engine(Profile().override({"models.target": str(speaking()), "models.draft": ""}))
    table = as_table(list(measure_variants(engine, ["plain", "draft"], {"chat": PROMPTS["chat"]}, [0.0], max_tokens=4)))

    assert "| plain | chat | 0 | 1.00 |" in table
    assert "draft: variant 'draft' needs a draft model" in table
    assert "| draft |" not in table


def test_a_tree_is_as_deep_as_its_longest_branch():
    assert 2 == draft_tree_depth(StepDone((5, 6, 7), (0, 0, 2), (), 0.0, 0.0))
    assert 0 == draft_tree_depth(StepDone((), (), (), 0.0, 0.0))
