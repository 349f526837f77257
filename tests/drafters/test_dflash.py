"""A head that fills a block of masks at once."""

from __future__ import annotations

import pytest
import torch

from specchat.drafters.block_chain import DraftedBlocks
from specchat.drafters.dflash import DFlashDrafter
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.sampling import LogitRows, Sampler
from tests.tiny import VOCABULARY, write
from tests.tiny_heads import drafted, prefilled, read

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
SAMPLERS = {"greedy": Sampler(), "T1": Sampler(1.0, seed=4), "penalty": Sampler(0.8, repetition_penalty=1.3, seed=2)}


def made(text: list[int] = TEXT) -> tuple[Generation, DFlashDrafter]:
    return prefilled(DFlashDrafter, "dflash", text)


@pytest.mark.dear
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


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_its_draft_is_the_best_token_of_each_position(sampler: str):
    writing, drafter = made()
    rules, outputs = SAMPLERS[sampler], list[DraftedBlocks]()
    fill = drafter.head.draft_block
    drafter.head.draft_block = lambda *asked: outputs.append(fill(*asked)) or outputs[-1]  # type: ignore[method-assign]

    tree = drafted(writing, drafter, rules)

    (block,) = outputs
    block_logits = block.logits
    assert block_logits.shape == (1, 5, VOCABULARY)
    assert tree.is_chain
    assert len(tree) > 1
    for ahead in range(len(tree) - 1):
        paths = [tree.tokens[1 : 1 + ahead]] if rules.has_penalties else None
        prefix = rules.make_seen_tokens(writing.tokens, VOCABULARY, torch.device("cpu"))
        assert rules.sample(block_logits[0, ahead : ahead + 1], LogitRows([len(TEXT) - 1 + ahead], paths), prefix) == [
            tree.tokens[1 + ahead]
        ]


def test_its_cache_holds_the_text_only_after_every_step():
    writing, drafter = made()
    plan, drafted = GenerationConfig(drafter, Sampler(1.0, seed=3), max_draft_tokens=8, max_new_tokens=24), 0

    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(24)):
        for step in writing.decode(plan):
            assert drafter.hidden_states.end == writing.cache.length == len(writing.tokens) - 1
            if step.drafted:
                assert drafter.cache.length == len(writing.tokens) - 1 - len(step.committed_tokens)
                drafted += 1
    assert drafted > 2


@pytest.mark.parametrize("cut", [0, 1, 13, len(TEXT)])
def test_a_truncation_drops_rows_and_states(cut: int):
    writing, drafter = made()
    drafted(writing, drafter)

    drafter.forget(cut)

    assert drafter.hidden_states.end == drafter.cache.length == min(cut, len(TEXT) - 1)


def test_cached_tokens_are_not_computed_again():
    writing, drafter = made()
    rows, read_on = list[int](), drafter.head.prefill
    drafter.head.prefill = lambda features, *rest: rows.append(len(features)) or read_on(features, *rest)  # type: ignore[method-assign]
    drafted(writing, drafter)
    drafted(writing, drafter)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=0, max_new_tokens=3))

    drafted(writing, drafter)

    assert rows == [len(TEXT) - 1, 3]


@pytest.mark.full
def test_its_cache_holds_at_most_twice_its_context_window():
    writing, drafter = made([token % 90 for token in range(3, 150)])
    assert drafter.head.context_window == 64
    drafted(writing, drafter)
    assert drafter.cache.length == 64

    for _ in range(4):
        write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=0, max_new_tokens=25))
        _, fresh = made(writing.tokens)
        assert drafted(writing, drafter).tokens == drafted(writing, fresh).tokens

    assert 64 <= drafter.cache.length <= 128


def test_the_budget_is_kept_and_may_be_zero():
    writing, drafter = made()

    assert len(drafted(writing, drafter, budget=1)) == 2
    assert 1 < len(drafted(writing, drafter, budget=99)) <= 6
    assert len(drafted(writing, drafter, budget=0)) == 1


def test_without_hidden_states_of_the_text_it_drafts_nothing():
    writing, drafter = made()
    writing.target.set_hidden_state_layers(())
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=0, max_new_tokens=3))

    assert len(drafted(writing, drafter)) == 1


def test_without_memory_for_its_kv_cache_it_drafts_nothing():
    writing, drafter = made()
    drafter.head.pool.budget_bytes = 1

    assert len(drafted(writing, drafter)) == 1
