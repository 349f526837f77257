"""A head that fills a block of masks at once."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache

import plugin_heads  # noqa: F401 - adds the tiny heads
import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.selftest import load_selected_head, self_test
from specchat.drafters.plugin_guard import PluginDrafterGuard
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.model import FINAL_NORM, Model
from specchat.engine.sampling import LogitRows, Sampler
from specchat.errors import ModelError
from specchat.loading.load_engine import load_engine
from specchat.weights.load import load_model
from specchat.weights.load_options import EMBEDDED, LoadOptions
from specchat_heads.block_chain import DraftedBlocks
from specchat_heads.block_spec import BlockConfig
from specchat_heads.dflash import DFlashDrafter
from specchat_heads.dflash_head import DFlashHead
from tests.faults.weights import load_hostile
from tests.tiny import SPEAKING, VOCABULARY, target, tiny_profile, write
from tests.tiny_heads import CPU, drafted, prefilled, read, saved_head, tiny_head

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


@lru_cache
def embedded_target() -> Model:
    return load_model(EMBEDDED / "target", LoadOptions(device="cpu", dtype="float32"))


class OracleHead(DFlashHead):
    """A block head with the logits of the target itself."""

    hidden_state_layers, draft_to_target_ids, tokens_ahead = (FINAL_NORM,), None, 2
    block_config = BlockConfig(block_size=3, mask_token_id=0)

    def __init__(self):
        self.pool = tiny_head("dflash", target("dense-llama")).pool

    def prefill(self, hidden_states, position, cache):
        self.logits = embedded_target().compute_logits(hidden_states)

    def draft_block(self, tokens, positions, cache, first_position=0, tokens_ahead=None):
        last = len(self.logits) - 1
        rows = torch.tensor([[min(position + step, last) for step in range(tokens_ahead)] for position in positions])
        return DraftedBlocks(self.logits[rows])


@pytest.mark.full
def test_a_block_is_compared_with_the_tokens_after_its_anchor():
    result = self_test(OracleHead(), embedded_target(), [(1,), (300,)])

    assert result.greedy_by_depth == (1.0, 1.0)


def test_tensors_that_do_not_fit_together_are_refused(tmp_path):
    folder = shutil.copytree(saved_head("dflash"), tmp_path / "head")
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"norm.weight": tensors["norm.weight"][:1].contiguous()}, folder / "model.safetensors")

    with pytest.raises(ModelError):
        load_selected_head(inspect_head(folder), target("dense-llama"), None, CPU, tmp_path / "cache")


@pytest.mark.full
def test_a_damaged_file_is_refused_in_a_line_or_computes(tmp_path):
    loads = load_hostile("dflash", tmp_path, count=40, seed=1)

    assert [] == loads.faults
    assert loads.refused > 0


def test_it_drafts_in_an_engine_for_its_target(tmp_path):
    shutil.copytree(saved_head("dflash"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text()) | {"vocab_size": SPEAKING, "num_target_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))

    engine = load_engine(tiny_profile().override({"models.heads": [str(tmp_path)]}))

    with engine.create_session() as session:
        assert isinstance(session.drafters["dflash"], PluginDrafterGuard)
        assert "dflash" in session.chooser.drafters
    assert engine.memory_bytes()["dflash"] > 0
