"""A head that predicts the tokens behind a pair in one pass."""

from __future__ import annotations

import pytest
import torch

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.sampling import LogitRows, Sampler
from specchat_heads.peagle_drafter import PEagleDrafter
from tests.tiny import VOCABULARY, write
from tests.tiny_heads import drafted, prefilled, read

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
SAMPLERS = {"greedy": Sampler(), "T1": Sampler(1.0, seed=4), "penalty": Sampler(0.8, repetition_penalty=1.3, seed=2)}


def made(text: list[int] = TEXT) -> tuple[Generation, PEagleDrafter]:
    return prefilled(PEagleDrafter, "peagle", text)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_after_turns_and_truncations_it_drafts_like_a_new_one(sampler: str):
    writing, drafter = made()
    for cut in (30, 2):
        write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=8, max_new_tokens=14))
        _, fresh = made(writing.tokens)
        assert drafted(writing, drafter, SAMPLERS[sampler]).tokens == drafted(writing, fresh, SAMPLERS[sampler]).tokens
        read(writing, [*writing.tokens[:cut], 5, 6, 8])
        _, fresh = made(writing.tokens)
        assert drafted(writing, drafter, SAMPLERS[sampler]).tokens == drafted(writing, fresh, SAMPLERS[sampler]).tokens


@pytest.mark.parametrize("length", [len(TEXT), 150])
def test_its_draft_is_one_pass_behind_the_pairs_of_the_text(length: int):
    writing, drafter = made((TEXT * 6)[:length])
    rows, run = list[tuple[int, int | None]](), drafter.head.forward

    def counting(hidden: torch.Tensor, *rest):
        rows.append((len(hidden), rest[-1]))
        return run(hidden, *rest)

    drafter.head.forward = counting  # type: ignore[method-assign]
    drafted(writing, drafter)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=0, max_new_tokens=3))
    drafted(writing, drafter, budget=3)

    pairs = min(length - 1, drafter.head.context_window)
    assert rows == [(pairs + 4, 5), (3 + 2, 3)]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_it_drafts_the_best_token_of_each_position(sampler: str):
    writing, drafter = made()
    rules, outputs, run = SAMPLERS[sampler], list[torch.Tensor](), drafter.head.forward

    def keeping(*asked):
        output = run(*asked)
        outputs.append(output.logits)
        return output

    drafter.head.forward = keeping  # type: ignore[method-assign]
    tree = drafted(writing, drafter, rules)

    (logits,) = outputs
    assert logits.shape == (5, 60)
    assert tree.is_chain and len(tree) > 1
    prefix = rules.make_seen_tokens(writing.tokens, VOCABULARY, torch.device("cpu"))
    for ahead in range(len(tree) - 1):
        paths = [tree.tokens[1 : 1 + ahead]] if rules.has_penalties else None
        row = LogitRows([len(TEXT) - 1 + ahead], paths, drafter.head.draft_to_target_ids)
        assert rules.sample(logits[ahead : ahead + 1], row, prefix) == [tree.tokens[1 + ahead]]


def test_its_cache_holds_committed_pairs_only_after_every_step():
    writing, drafter = made()
    plan, drafted = GenerationConfig(drafter, Sampler(1.0, seed=3), max_draft_tokens=8, max_new_tokens=24), 0

    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(24)):
        for step in writing.decode(plan):
            assert drafter.hidden_states.end == writing.cache.length == len(writing.tokens) - 1
            if step.drafted:
                assert drafter.cache.length == len(writing.tokens) - 1 - len(step.committed_tokens)
                drafted += 1
    assert drafted > 2


def test_the_budget_is_kept_and_may_be_zero():
    writing, drafter = made()

    lengths = [len(drafted(writing, drafter, Sampler(), budget)) for budget in (0, 1, 99)]
    assert lengths[:2] == [1, 2]
    assert 1 < lengths[2] <= 6


def test_without_memory_for_its_kv_cache_it_drafts_nothing():
    writing, drafter = made()
    drafter.head.pool.budget_bytes = 1

    assert len(drafted(writing, drafter)) == 1
