"""A draft model with the target's tokens."""

import pytest

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from tests.tiny import VOCABULARY, answer, small

TEXT = [5, 6, 7, 8, 9, 10] * 5  # longer than a chunk


def test_it_drafts_what_it_would_generate_itself():
    tree = DraftModelDrafter(small(), chain_length=4).propose(DraftContext(TEXT, Sampler(), max_draft_tokens=8))

    assert tree.tokens[1:] == answer(small(), Drafter(), TEXT, Sampler(), limit=4)


def test_draft_tokens_use_the_noise_of_the_target():
    sampler = Sampler(1.0, seed=4)
    tree = DraftModelDrafter(small(), chain_length=4).propose(DraftContext(TEXT, sampler, max_draft_tokens=8))

    assert tree.first_chain(8).tokens[1:] == answer(small(), Drafter(), TEXT, sampler, limit=4)


def test_at_positive_temperature_each_token_has_a_sibling():
    tree = DraftModelDrafter(small(), chain_length=3).propose(
        DraftContext(TEXT, Sampler(1.0, seed=4), max_draft_tokens=8)
    )

    assert sorted(tree.parents) == [-1, 0, 0, 1, 1, 3, 3]


def test_only_committed_tokens_stay_in_its_cache():
    drafter = DraftModelDrafter(small(), chain_length=4)

    drafter.propose(DraftContext(TEXT, Sampler(), max_draft_tokens=8))

    assert drafter.cache.length == len(TEXT) - 1


def test_cached_tokens_are_not_computed_twice():
    drafter, reads = DraftModelDrafter(small(), chain_length=2), list[int]()
    drafter.propose(DraftContext(TEXT, Sampler(), max_draft_tokens=8))
    read = drafter.model.prefill
    drafter.model.prefill = lambda tokens, cache: reads.append(len(tokens)) or read(tokens, cache)

    drafter.propose(DraftContext([*TEXT, 11, 12], Sampler(), max_draft_tokens=8))

    assert reads == [3, 1]


@pytest.mark.parametrize("cut", [0, 3, 20])
def test_a_truncated_text_is_computed_again_from_there(cut):
    drafter = DraftModelDrafter(small(), chain_length=4)
    drafter.propose(DraftContext(TEXT, Sampler(), max_draft_tokens=8))
    other = [*TEXT[:cut], 40, 41, 42]

    drafter.forget(cut)

    fresh = DraftModelDrafter(small(), chain_length=4).propose(DraftContext(other, Sampler(), max_draft_tokens=8))
    assert drafter.propose(DraftContext(other, Sampler(), max_draft_tokens=8)).tokens == fresh.tokens


def test_beyond_its_context_window_it_drafts_nothing():
    drafter = DraftModelDrafter(small(), chain_length=4)
    drafter.model.context_window = len(TEXT) + 2

    assert len(drafter.propose(DraftContext(TEXT, Sampler(), max_draft_tokens=8))) == 3
    assert len(drafter.propose(DraftContext(TEXT + TEXT, Sampler(), max_draft_tokens=8))) == 1


def test_tokens_beyond_its_vocabulary_are_replaced():
    drafter = DraftModelDrafter(small(), chain_length=4)

    assert len(drafter.propose(DraftContext([*TEXT, VOCABULARY, VOCABULARY + 5], Sampler(), max_draft_tokens=8))) == 5


def test_without_memory_for_its_kv_cache_it_drafts_nothing():
    drafter = DraftModelDrafter(small(), chain_length=4)
    drafter.model.pool.budget_bytes = 10

    assert len(drafter.propose(DraftContext(TEXT, Sampler(), max_draft_tokens=8))) == 1
