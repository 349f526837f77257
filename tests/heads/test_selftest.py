"""The embedded heads know their target by far better than chance; read in a wrong way, they know it worse.

Not every misreading shows in so few words: the states of neighbouring layers of a small network are much alike. What
must be right to the last bit is compared with the publishers' own code, in `test_heads.py`.
"""

import json
import os
import shutil
from dataclasses import replace
from functools import lru_cache
from weakref import WeakKeyDictionary, WeakSet

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.cli.main import run
from specchat.engine.cache import KVPool
from specchat.engine.model import FINAL_NORM, ModelOutput
from specchat.forward.batch import RowBatch
from specchat.heads import selftest
from specchat.heads.detect import inspect_head
from specchat.heads.networks import load_head
from specchat.heads.selftest import Agreement, load_selected_head, select_variant, self_test
from specchat.heads.spec import BlockConfig
from specchat.models.load import load_model
from specchat.models.load_options import EMBEDDED, LoadOptions
from tests.heads.test_networks import seen_as, unsharpened, wired, without
from tests.tiny import VOCABULARY
from tests.tiny import target as tiny
from tests.tiny_heads import saved_head, tiny_head

CPU = torch.device("cpu")
SHARP = {"type": "yarn", "factor": 40, "mscale": 2.0, "mscale_all_dim": 2.0, "original_max_position_embeddings": 4096}
LOUD = ("q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
CHANCE, PROMPTS = 1 / 8192, [(1,), (300,)]


@lru_cache
def target():
    return load_model(EMBEDDED / "target", LoadOptions(device="cpu", dtype="float32"))


@lru_cache
def spec(head):
    return inspect_head(EMBEDDED / head)


def loaded(head, misread=lambda spec: spec):
    return load_head(misread(spec(head)), target(), None, CPU)


@lru_cache
def agreement(head):
    return self_test(loaded(head), target(), PROMPTS)


@pytest.mark.parametrize(("head", "at_least"), [("eagle3", 0.3), ("mtp", 0.4), ("medusa", 0.1)])
def test_the_embedded_heads_beat_chance_by_far(head, at_least):
    assert all(share > at_least > 500 * CHANCE for share in agreement(head).greedy_by_depth)


def test_every_place_ahead_is_asked_about():
    assert [len(agreement(head).greedy_by_depth) for head in ("eagle3", "mtp", "medusa")] == [3, 3, 4]


@pytest.mark.full
def test_of_two_readings_of_the_taps_the_right_one_is_taken():
    right = spec("eagle3").hidden_state_layers_for(12)
    shifted = tuple(tap + 1 for tap in right)
    unsure = replace(spec("eagle3"), taps=shifted).with_variants(replace(spec("eagle3"), taps=right))

    head, found = select_variant(unsure, target(), None, CPU, PROMPTS)

    assert head.hidden_state_layers == right
    assert found == agreement("eagle3")


def test_a_reading_beyond_the_targets_depth_is_left_out():
    unsure = spec("medusa").with_variants(replace(spec("medusa"), taps=(13,)))

    assert select_variant(unsure, target(), None, CPU, PROMPTS)[1] == agreement("medusa")


@pytest.mark.full
@pytest.mark.parametrize(
    ("head", "misread"),
    [
        ("eagle3", lambda spec: replace(spec, taps=(9, 6, 2))),
        ("eagle3", wired(residual_is_normed=True)),
        ("mtp", wired(feature_first=True)),
    ],
    ids=["the order of the taps", "norm_before_residual", "the order of a pair"],
)
def test_a_misreading_agrees_less(head, misread):
    assert sum(self_test(loaded(head, misread), target(), PROMPTS).greedy_by_depth) < 0.9 * sum(
        agreement(head).greedy_by_depth
    )


def test_offsets_taken_for_ids_agree_with_nothing():
    head = loaded("eagle3")
    head.draft_to_target_ids = spec("eagle3").tensors.read_tensor("d2t")

    assert max(self_test(head, target(), PROMPTS).greedy_by_depth) < 0.05


class Knowing:
    """A head that fills blocks with what the target itself says after the true words."""

    hidden_state_layers, draft_to_target_ids, tokens_ahead = (FINAL_NORM,), None, 2
    slots = BlockConfig(block_size=3, mask_token_id=0)

    def __init__(self):
        self.pool = tiny_head("dflash", tiny("dense-llama")).pool

    def prefill(self, hidden_states, position, cache):
        self.said = target().compute_logits(hidden_states)

    def draft_block(self, tokens, positions, cache, first_position=0, tokens_ahead=None):
        last = len(self.said) - 1
        return torch.stack(
            [self.said[[min(position + step, last) for step in range(tokens_ahead)]] for position in positions]
        )


def test_a_block_is_compared_with_what_follows_its_first_token():
    found = self_test(Knowing(), target(), PROMPTS)

    assert found.greedy_by_depth == (1.0, 1.0)


class Continuing:
    """A target whose every next state is what a head makes of the last pair: read rightly, the head is always right."""

    vocab_size, hidden_state_layers, bytes = VOCABULARY, (), 0

    def __init__(self, head, layers):
        layout = head.pool.layout
        self.head, self.pool = head, KVPool(replace(layout, shapes=layout.shapes * layers))
        self.known = WeakKeyDictionary()  # the last state of every text
        self.first = torch.randn(VOCABULARY, 48, generator=torch.Generator().manual_seed(1))

    def set_hidden_state_layers(self, hidden_state_layers):
        self.hidden_state_layers = hidden_state_layers

    def embed(self, tokens):
        return self.first[tokens]

    def prefill(self, tokens, cache):
        if cache not in self.known:
            self.known[cache] = self.first[tokens]
            return ModelOutput(torch.zeros(1, VOCABULARY), self.known[cache])
        length, embedded = cache.length, self.head.embed(torch.tensor(tokens))
        place = RowBatch(tokens, torch.tensor([length]), torch.ones(1, length + 1, dtype=torch.bool), length)
        said = self.head.run(self.known[cache], embedded, place, cache)
        cache.commit([0])
        self.known[cache] = said.hidden
        return ModelOutput(said.logits, said.hidden)


LATENT_MISREADINGS = {
    "neighbours are taken for halves": seen_as(interleaved=False),
    "scores are not sharpened": unsharpened,
    "latents are not normed": without("layers.0.self_attn.kv_a_layernorm.weight"),
    "the halves of eh_proj are swapped": wired(feature_first=True),
    "what is fed back is not normed": wired(feeds_normed=False),
}


class TestAHeadOverLatents:
    @pytest.fixture
    def spec(self, tmp_path):
        """A head that is sure of itself, and looks back a lot: its scores are large, and sharpened besides."""
        shutil.copytree(saved_head("mtp latent"), tmp_path, dirs_exist_ok=True)
        weights = load_file(tmp_path / "model.safetensors")
        at, dice = "model.layers.3", torch.Generator().manual_seed(2)
        weights |= {f"{at}.self_attn.{name}.weight": 2 * weights[f"{at}.self_attn.{name}.weight"] for name in LOUD}
        for norm in (f"{at}.self_attn.kv_a_layernorm.weight", f"{at}.shared_head.norm.weight"):
            weights[norm] = 0.5 + torch.rand(weights[norm].shape, generator=dice)
        for own in ("embed_tokens", "shared_head.head"):
            weights[f"{at}.{own}.weight"] = 0.7 * torch.randn(VOCABULARY, 48, generator=dice)
        save_file(weights, tmp_path / "model.safetensors")
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": SHARP}))
        return inspect_head(tmp_path)

    @pytest.fixture
    def partner(self, spec):
        return Continuing(load_head(spec, tiny("dense-llama"), None, CPU), layers=3)

    def test_is_always_right_when_it_is_read_rightly(self, spec, partner):
        assert self_test(load_head(spec, partner, None, CPU), partner).greedy_by_depth == (1.0, 1.0, 1.0)

    @pytest.mark.parametrize("misreading", LATENT_MISREADINGS)
    def test_is_often_wrong_when_it_is_misread(self, misreading, spec, partner):
        misread = LATENT_MISREADINGS[misreading](spec)

        found = self_test(load_head(misread, partner, None, CPU), partner)

        assert found.greedy_by_depth[-1] < 0.7

    def test_is_read_as_it_agrees_best_where_nothing_says_how_it_turns(self, spec, partner):
        halves = replace(spec, block=replace(spec.block, latent=replace(spec.block.latent, interleaved=False)))

        _head, found = select_variant(halves.also(spec), partner, None, CPU)

        assert found.greedy_by_depth == (1.0, 1.0, 1.0)


class TestWhatWasSettled:
    @pytest.fixture
    def tested(self, monkeypatch):
        """How often a head was tested."""
        calls = list[int]()

        def counted(head, model, prompts=()):
            calls.append(1)
            return self_test(head, model, prompts)

        monkeypatch.setattr(selftest, "self_test", counted)
        return calls

    def test_is_not_tested_again(self, tested, tmp_path):
        model, spec = tiny("dense-llama"), inspect_head(saved_head("dflash"))
        right = select_variant(spec, model, None, CPU)[0].hidden_state_layers
        tested.clear()

        heads = [load_selected_head(spec, model, None, CPU, tmp_path) for _ in range(2)]

        assert [head.hidden_state_layers for head in heads] == [right, right]
        assert len(tested) == 2  # once for each reading

    def test_is_tested_again_when_the_head_was_written_anew(self, tested, tmp_path):
        model, folder = tiny("dense-llama"), tmp_path / "head"
        shutil.copytree(saved_head("dflash"), folder)
        load_selected_head(inspect_head(folder), model, None, CPU, tmp_path)
        os.utime(folder / "model.safetensors", ns=(1, 1))

        load_selected_head(inspect_head(folder), model, None, CPU, tmp_path)

        assert len(tested) == 4

    def test_is_tested_again_beside_another_target(self, tested, tmp_path):
        spec = inspect_head(saved_head("dflash"))

        for shape in ("dense-llama", "dense-qwen3"):
            load_selected_head(spec, tiny(shape), None, CPU, tmp_path)

        assert len(tested) == 4

    def test_is_tested_again_when_the_readings_are_others(self, tested, tmp_path):
        model, spec = tiny("dense-llama"), inspect_head(saved_head("mtp latent"))
        halves = seen_as(interleaved=False)(spec)

        for readings in (spec.with_variants(halves), halves.also(spec)):
            load_selected_head(readings, model, None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.parametrize("content", ["", "[]", '{"reading": 7}', '{"reading": "1"}'])
    def test_is_tested_again_when_what_was_kept_makes_no_sense(self, content, tested, tmp_path):
        model, spec = tiny("dense-llama"), inspect_head(saved_head("dflash"))
        load_selected_head(spec, model, None, CPU, tmp_path)
        (kept,) = (tmp_path / "readings").iterdir()
        kept.write_text(content)

        load_selected_head(spec, model, None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.parametrize("kind", ["dflash", "mtp latent"])
    def test_had_one_head_in_memory_at_a_time(self, kind, monkeypatch, tmp_path):
        alive, most, loads = WeakSet(), [], []

        def counted(reading, *rest):
            head = load_head(reading, *rest)
            alive.add(head)
            most.append(len(alive))
            loads.append(reading)
            return head

        monkeypatch.setattr(selftest, "load_head", counted)
        spec = inspect_head(saved_head(kind))
        unsure = spec if spec.variants else spec.with_variants(seen_as(interleaved=False)(spec))

        load_selected_head(unsure, tiny("dense-llama"), None, CPU, tmp_path)

        assert 1 == max(most)
        assert len(unsure.variants) + 2 == len(loads)  # each once, and the best again

    def test_is_no_question_for_a_head_with_one_reading(self, tested, tmp_path):
        load_selected_head(inspect_head(saved_head("medusa")), tiny("dense-llama"), None, CPU, tmp_path)

        assert not tested
        assert not (tmp_path / "readings").exists()

    def test_is_settled_without_a_disk_too(self, tested, tmp_path):
        (tmp_path / "readings").write_text("no folder")

        assert load_selected_head(
            inspect_head(saved_head("dflash")), tiny("dense-llama"), None, CPU, tmp_path
        ).hidden_state_layers
        assert len(tested) == 2


def test_tokens_per_pass_counts_what_follows_right_guesses():
    assert Agreement((0.1, 0.1), (0.5, 0.5), 8).tokens_per_step == 1.75


def test_afterwards_the_target_has_the_taps_of_before():
    target().set_hidden_state_layers((3, 5))
    try:
        self_test(loaded("medusa"), target(), [(1,)])
        assert target().hidden_state_layers == (3, 5)
    finally:
        target().set_hidden_state_layers(())


def test_the_command_shows_how_well_they_agree(capsys):
    assert run(["models", "inspect", "embedded/mtp", "--target", "embedded", "--test"]) == 0

    assert "of 120 places, by how far ahead" in capsys.readouterr().out
