"""Medusa: heads for one token each, combined into a tree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat_heads.candidate_tree import TOP_K, sparse_tree
from specchat_heads.medusa import Medusa
from tests.tiny import VOCABULARY, answer, target, write
from tests.tiny_heads import drafter_of

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3


class Oracle:
    """Knows the text that is coming; its favourite is wrong, its second candidate right."""

    tokens_ahead = 3

    def __init__(self, text: list[int]) -> None:
        self.text, self.read = text, 0

    def logits(self, hidden_states: Tensor) -> list[Tensor]:
        rows = torch.zeros(3, 1, VOCABULARY)
        for ahead, token in enumerate(self.text[self.read : self.read + 3]):
            rows[ahead, 0, token] = 5.0
            rows[ahead, 0, (token + 1) % VOCABULARY] = 9.0
        return list(rows)


def made(text: list[int] = TEXT) -> tuple[Generation, Medusa]:
    """A prefilled text, and a drafter that observed it."""
    model = target("dense-llama")
    drafter = drafter_of("medusa", model)
    assert isinstance(drafter, Medusa)
    writing = Generation(model, (drafter,))
    writing.replace_tokens(text)
    with model.pool.acquire_slot(writing.cache, len(text) + SCRATCH_ROWS):
        list(writing.prefill())
    return writing, drafter


def drafted(writing: Generation, drafter: Drafter, budget: int = 12, sampler: Sampler | None = None) -> DraftTree:
    return drafter.propose(DraftContext(writing.tokens, sampler or Sampler(), budget))


def test_the_most_probable_combinations_get_the_rows():
    assert sparse_tree([[0.5, 0.4], [0.6, 0.1]], 3) == [[(0, 1), (1, 2)], [(0, 3)], [], []]
    assert sparse_tree([[0.5, 0.001]], 9) == [[(0, 1)], []]
    assert sparse_tree([[0.5]], 0) == [[]]


def test_every_depth_has_candidates_of_its_own_head():
    writing, drafter = made()
    tree = drafted(writing, drafter)
    assert drafter._hidden_state is not None
    ahead = drafter.head.logits(drafter._hidden_state)

    assert max(tree.depths) > 1
    for node in range(1, len(tree)):
        assert tree.tokens[node] in ahead[tree.depths[node] - 1][0].topk(TOP_K).indices.tolist()


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(1.0, seed=4)], ids=["greedy", "T1"])
def test_the_budget_is_kept(sampler):
    writing, drafter = made()
    for budget in range(12):
        assert len(drafted(writing, drafter, budget, sampler)) <= budget + 1


def test_the_tree_learns_which_candidates_are_right():
    model = target("dense-llama")
    text = TEXT + answer(target("dense-llama"), Drafter(), TEXT, Sampler(), limit=60)
    oracle = Oracle(text)
    drafter, writing = Medusa(oracle, model), Generation(model)
    writing.drafters = (drafter,)
    model.set_hidden_state_layers(drafter.hidden_state_layers)
    writing.replace_tokens(TEXT)
    prior = drafter.acceptance_probabilities[0][:2]
    while len(writing.tokens) < len(text):
        oracle.read = len(writing.tokens)
        write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=4, max_new_tokens=2))

    assert writing.tokens == text
    assert drafter.acceptance_probabilities[0][0] < prior[0]
    assert drafter.acceptance_probabilities[0][1] > prior[1]


def test_after_a_truncation_it_drafts_nothing_until_the_next_pass():
    writing, drafter = made()
    assert len(drafted(writing, drafter)) > 1

    writing.truncate(10)
    assert len(drafted(writing, drafter)) == 1
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=2))

    fresh_writing, fresh = made(writing.tokens)
    assert drafted(writing, drafter).tokens[1] == drafted(fresh_writing, fresh).tokens[1]
