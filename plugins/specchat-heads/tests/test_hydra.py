"""Hydra: the candidates of a position follow from the path to it."""

from __future__ import annotations

import pytest
import torch

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat_heads.candidate_tree import TOP_K
from specchat_heads.hydra_drafter import Hydra
from tests.tiny import write
from tests.tiny_heads import prefilled, read

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
KINDS = ["hydra", "hydra++"]


def made(kind: str, text: list[int] = TEXT) -> tuple[Generation, Hydra]:
    return prefilled(Hydra, kind, text)


def drafted(writing: Generation, drafter: Hydra, budget: int = 12, sampler: Sampler | None = None) -> DraftTree:
    return drafter.propose(DraftContext(writing.tokens, sampler or Sampler(), budget))


@pytest.mark.parametrize("kind", KINDS)
def test_every_candidate_follows_from_its_path(kind):
    writing, drafter = made(kind)
    drafter.acceptance_probabilities = [[0.5, 0.4], [0.9, 0.8], [0.9]]
    tree = drafted(writing, drafter)
    cache = drafter.head.pool.open()
    with drafter.head.pool.acquire_slot(cache, 64):
        state = drafter.head.prefill(drafter.hidden_states.slice_from(0), cache)[-1:]

    assert max(tree.depths) == 3
    best = dict[int, list[int]]()
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        path = [TEXT[-1], *tree.path_tokens(parent)]
        best[parent] = drafter.head.logits(state, torch.tensor([path]))[0].topk(TOP_K).indices.tolist()
        assert tree.tokens[node] in best[parent]
    at_depth_two = [best[node] for node in best if tree.depths[node] == 1]
    assert len(at_depth_two) == 2
    assert at_depth_two[0] != at_depth_two[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", [Sampler(), Sampler(0.8, seed=4), Sampler(0.8, repetition_penalty=1.3, seed=2)])
def test_after_turns_and_truncations_it_drafts_like_a_new_one(kind, sampler):
    writing, drafter = made(kind)
    for cut in (30, 2):
        write(writing, GenerationConfig(drafter, sampler, max_draft_tokens=8, max_new_tokens=14))
        read(writing, [*writing.tokens[:cut], 5, 6, 8])
        _, fresh = made(kind, writing.tokens)
        fresh.acceptance_probabilities = drafter.acceptance_probabilities
        assert len(drafted(writing, drafter, sampler=sampler)) > 1
        assert drafted(writing, drafter, sampler=sampler).tokens == drafted(writing, fresh, sampler=sampler).tokens


def test_after_a_text_beyond_its_context_window_it_can_go_back_to_the_start():
    writing, drafter = made("hydra++", [token % 90 for token in range(3, 150)])
    assert drafter.head.context_window == 64
    drafted(writing, drafter)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=0, max_new_tokens=25))
    drafted(writing, drafter)
    read(writing, writing.tokens[:12])

    _, fresh = made("hydra++", writing.tokens)
    fresh.acceptance_probabilities = drafter.acceptance_probabilities
    assert drafted(writing, drafter).tokens == drafted(writing, fresh).tokens
    assert drafter.cache.length == 11


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_learns_along_the_accepted_path(kind):
    _writing, drafter = made(kind)
    drafter._candidates = [{(): [5, 6]}, {(5,): [8], (6,): [9, 7]}]
    before = [list(row) for row in drafter.acceptance_probabilities]

    drafter._update_probabilities([6, 7, 1])

    after = drafter.acceptance_probabilities
    assert after[0][1] > before[0][1]
    assert after[0][0] < before[0][0]
    assert after[1][1] > before[1][1]
    assert after[1][0] < before[1][0]
    assert after[2] == before[2]


def test_without_memory_for_its_kv_cache_it_drafts_nothing():
    writing, drafter = made("hydra++")
    drafter.head.pool.budget_bytes = 1

    assert len(drafted(writing, drafter)) == 1
