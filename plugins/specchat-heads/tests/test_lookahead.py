"""Guesses that the target made for itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specchat.engine.accept import accept
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat_heads.lookahead import MAX_NGRAM_TOKENS, NGRAMS_PER_TOKEN, Lookahead, NgramPool
from tests.tiny import target, write

UNUSED = torch.zeros(0)


def after_outcome(drafter: Lookahead, text: list[int], sampled: list[int]) -> list[int]:
    """Draft after `text`, observe the tokens sampled at each node, and return the longer text."""
    tree = drafter.propose(DraftContext(text, Sampler(), len(sampled) - 1))
    outcome = Outcome(tree, accept(tree, sampled), sampled, len(text) - 1, logits=UNUSED)
    drafter.observe(outcome)
    return text + outcome.committed_tokens


def test_the_newest_ngram_of_a_token_comes_first():
    pool = NgramPool()
    for last in range(NGRAMS_PER_TOKEN + 3):
        pool.add((1, 2, last))

    assert pool.continuations(1) == [(2, last) for last in range(NGRAMS_PER_TOKEN + 2, 2, -1)]


def test_a_longer_ngram_replaces_its_prefix():
    pool = NgramPool()
    pool.add((1, 2))
    pool.add((1, 2, 3))

    assert pool.continuations(1) == [(2, 3)]


def test_the_window_becomes_the_sampled_tokens():
    drafter = Lookahead(window=3)
    text = after_outcome(drafter, [10, 20, 30], sampled=[1, 2, 3, 4])  # after the draft tokens 30, 20, 10

    assert drafter.propose(DraftContext(text, Sampler(), 3)).path_tokens(3) == [2, 3, 4]


def test_an_accepted_token_moves_the_window():
    drafter = Lookahead(window=3)
    text = after_outcome(drafter, [10, 20, 30], sampled=[30, 2, 3, 4])

    tree = drafter.propose(DraftContext(text, Sampler(), 2))

    assert text == [10, 20, 30, 30, 2]
    assert tree.path_tokens(2) == [3, 4]


def test_the_trajectory_of_a_position_is_an_ngram():
    drafter = Lookahead(window=3)
    text = after_outcome(drafter, [10, 20, 30], sampled=[1, 40, 50, 60])
    text = after_outcome(drafter, text, sampled=[2, 41, 51, 61])  # 20 became 50, 50 became 51

    tree = drafter.propose(DraftContext([*text, 20], Sampler(), 16))

    assert tree.child(tree.child(0, 50), 51) is not None


def test_ngrams_of_the_text_are_drafted_when_their_first_token_returns():
    tree = Lookahead().propose(DraftContext([1, 2, 3, 4, 5, 6, 1], Sampler(), 16))

    assert tree.path_tokens(MAX_NGRAM_TOKENS - 1) == [2, 3, 4, 5]


def test_rejected_tokens_add_ngrams_too():
    drafter, tree = Lookahead(), DraftTree(1)
    tree.add_chain([50, 60])
    drafter.observe(Outcome(tree, [0], [2, 60, 70], 0, logits=UNUSED))

    tree = drafter.propose(DraftContext([1, 2, 50], Sampler(), 16))

    assert tree.path_tokens(2) == [60, 70]


def test_tokens_that_the_target_did_not_sample_are_no_ngram():
    drafter, tree = Lookahead(), DraftTree(1)
    tree.add_chain([50, 60])
    drafter.observe(Outcome(tree, [0], [2, 61, 70], 0, logits=UNUSED))

    assert drafter.propose(DraftContext([1, 2, 50], Sampler(), 16)).path_tokens(1) == [61]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 12))
def test_the_budget_is_kept(text, budget):
    assert len(Lookahead().propose(DraftContext(text, Sampler(), budget))) <= budget + 1


@pytest.mark.parametrize("text", [[0], [0] * 300])
def test_a_text_of_one_token_works(text):
    assert len(Lookahead().propose(DraftContext(text, Sampler(), 8))) > 1


def test_a_truncated_text_loses_its_window():
    drafter = Lookahead(window=4)
    after_outcome(drafter, [10, 20, 30], sampled=[1, 2, 3, 4, 5])

    drafter.forget(1)

    assert drafter.propose(DraftContext([10, 20], Sampler(), 4)).path_tokens(4) == [20, 10, 20, 10]


def test_a_random_target_accepts_some_tokens():
    drafter = Lookahead()
    writing = Generation(target(), (drafter,))
    writing.replace_tokens([7, 3, 9])

    steps = write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=16, max_new_tokens=200))

    assert sum(step.accepted for step in steps) / len(steps) > 0.3
