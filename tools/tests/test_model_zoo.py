"""The table of families: what it says of a family was compared with transformers."""

from __future__ import annotations

import pytest

from tests.each_row import each_row
from tools.model_zoo import try_family
from tools.zoo_networks import families

ONCE_WRONG = ["bamba", "jamba", "recurrent_gemma", "gpt_neox", "minimax", "zamba2"]


@each_row("family", ONCE_WRONG, shares=3)
def test_a_family_that_was_refused_or_wrong_answers_as_transformers_does(family):
    row = try_family(family)

    assert row.loads
    assert row.equals_transformers
    assert row.is_lossless
    assert row.is_explained


def test_the_table_has_at_least_sixty_families():
    assert len(families()) >= 60


@pytest.mark.full
@pytest.mark.parametrize("family", [name for name in families() if name not in ONCE_WRONG])
def test_every_other_family_is_right_or_says_why_not(family):
    assert try_family(family).is_explained
