"""The embedded heads predict their target far better than chance, and worse with a misread config.

The short sample does not show every misreading: the states of neighbouring layers of a small network are similar.
`test_networks.py` compares exact outputs with the publishers' code.
"""

import os
import shutil
from dataclasses import replace
from functools import lru_cache
from weakref import WeakKeyDictionary, WeakSet

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.drafters.heads import selftest
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.selftest import Agreement, load_selected_head, self_test
from specchat.engine.cache import KVPool
from specchat.engine.model import ModelOutput
from specchat.errors import ModelError
from specchat.forward.batch import RowBatch
from specchat.weights.load import load_model
from specchat.weights.load_options import EMBEDDED, LoadOptions
from tests.drafters.test_networks import with_wiring
from tests.tiny import VOCABULARY
from tests.tiny import target as tiny
from tests.tiny_heads import saved_head

CPU = torch.device("cpu")
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


@pytest.mark.dear
@pytest.mark.parametrize(("head", "at_least"), [("eagle3", 0.3), ("mtp", 0.4)])
def test_the_embedded_heads_beat_chance_by_far(head, at_least):
    assert all(share > at_least > 500 * CHANCE for share in agreement(head).greedy_by_depth)


@pytest.mark.full
def test_every_depth_is_tested():
    assert [len(agreement(head).greedy_by_depth) for head in ("eagle3", "mtp")] == [3, 3]


@pytest.mark.full
def test_the_right_one_of_two_variants_is_selected(tmp_path):
    right = spec("eagle3").hidden_state_layers_for(12)
    shifted = tuple(layer + 1 for layer in right)
    ambiguous = replace(spec("eagle3"), hidden_state_layers=shifted)
    ambiguous = ambiguous.with_variants(replace(spec("eagle3"), hidden_state_layers=right))

    head = load_selected_head(ambiguous, target(), None, CPU, tmp_path)

    assert head.hidden_state_layers == right
    assert self_test(head, target(), PROMPTS) == agreement("eagle3")


@pytest.mark.full
def test_a_variant_beyond_the_depth_of_the_target_is_ignored(tmp_path):
    ambiguous = spec("mtp").with_variants(replace(spec("mtp"), hidden_state_layers=(13,)))

    head = load_selected_head(ambiguous, target(), None, CPU, tmp_path)

    assert self_test(head, target(), PROMPTS) == agreement("mtp")


@pytest.mark.full
@pytest.mark.parametrize(
    ("head", "misread"),
    [
        ("eagle3", lambda spec: replace(spec, hidden_state_layers=(9, 6, 2))),
        ("eagle3", with_wiring(residual_is_normed=True)),
        ("mtp", with_wiring(is_feature_first=True)),
    ],
    ids=["the order of the layers", "norm_before_residual", "the order of a pair"],
)
def test_a_misreading_agrees_less(head, misread):
    assert sum(self_test(loaded(head, misread), target(), PROMPTS).greedy_by_depth) < 0.9 * sum(
        agreement(head).greedy_by_depth
    )


@pytest.mark.full
def test_offsets_taken_for_ids_agree_with_no_token():
    head = loaded("eagle3")
    head.draft_to_target_ids = spec("eagle3").tensors.read_tensor("d2t")

    assert max(self_test(head, target(), PROMPTS).greedy_by_depth) < 0.05


class PredictedTarget:
    """A target whose next hidden state is the output of a head for the last pair: the head is always right."""

    vocab_size, hidden_state_layers, bytes, context_window = VOCABULARY, (), 0, 1024

    def __init__(self, head, layers):
        layout = head.pool.layout
        self.head, self.pool = head, KVPool(replace(layout, shapes=layout.shapes * layers))
        self.layer_count, self.embedding_table = len(self.pool.layout.shapes), None
        self.last_states = WeakKeyDictionary()  # of every text
        self.embeddings = torch.randn(VOCABULARY, 48, generator=torch.Generator().manual_seed(1))

    def set_hidden_state_layers(self, hidden_state_layers):
        self.hidden_state_layers = hidden_state_layers

    def embed(self, tokens):
        return self.embeddings[tokens]

    def prefill(self, tokens, cache):
        if cache not in self.last_states:
            self.last_states[cache] = self.embeddings[tokens]
            return ModelOutput(torch.zeros(1, VOCABULARY), self.last_states[cache])
        length, embeddings = cache.length, self.head.embed(torch.tensor(tokens))
        batch = RowBatch(tokens, torch.tensor([length]), torch.ones(1, length + 1, dtype=torch.bool), length)
        output = self.head.forward(self.last_states[cache], embeddings, batch, cache)
        cache.commit([0])
        self.last_states[cache] = output.hidden_states
        return ModelOutput(output.logits, output.hidden_states)


class TestTheCachedVariant:
    @pytest.fixture
    def tested(self, monkeypatch):
        """A list with an entry for every test of a head."""
        calls = list[int]()

        def counting(head, model, prompts=()):
            calls.append(1)
            return self_test(head, model, prompts)

        monkeypatch.setattr(selftest, "self_test", counting)
        return calls

    def test_is_not_tested_again(self, tested, tmp_path):
        model, spec = tiny("dense-llama"), inspect_head(saved_head("eagle3"))
        spec = spec.with_variants(replace(spec, hidden_state_layers=(0, 1, 3)))
        right = load_selected_head(spec, model, None, CPU, tmp_path / "before").hidden_state_layers
        tested.clear()

        heads = [load_selected_head(spec, model, None, CPU, tmp_path) for _ in range(2)]

        assert [head.hidden_state_layers for head in heads] == [right, right]
        assert len(tested) == 2  # once for each variant

    def test_is_tested_again_when_the_head_has_changed(self, tested, tmp_path):
        model, folder = tiny("dense-llama"), tmp_path / "head"
        shutil.copytree(saved_head("mtp"), folder)
        load_selected_head(inspect_head(folder), model, None, CPU, tmp_path)
        os.utime(folder / "model.safetensors", ns=(1, 1))

        load_selected_head(inspect_head(folder), model, None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.full
    def test_is_tested_again_with_another_target(self, tested, tmp_path):
        spec = inspect_head(saved_head("mtp"))

        for shape in ("dense-llama", "dense-qwen3"):
            load_selected_head(spec, tiny(shape), None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.full
    def test_is_tested_again_with_a_target_that_differs_only_in_its_weights(self, tested, tmp_path):
        spec, trained = inspect_head(saved_head("mtp")), tiny("dense-llama")
        embed = trained.embed
        trained.embed = lambda tokens: embed(tokens) + 0.01

        for model in (tiny("dense-llama"), trained):
            load_selected_head(spec, model, None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.full
    def test_is_tested_again_when_the_variants_are_others(self, tested, tmp_path):
        model, spec = tiny("dense-llama"), inspect_head(saved_head("mtp"))
        other = with_wiring(feeds_back_normed=False)(spec)

        for variants in (spec.with_variants(other), other.with_variants(spec)):
            load_selected_head(variants, model, None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.dear
    @pytest.mark.parametrize(
        "content",
        [*(pytest.param(text, marks=pytest.mark.full) for text in ("", "[]")), '{"variant": 7}', '{"variant": "1"}'],
    )
    def test_is_tested_again_when_the_cache_entry_is_invalid(self, content, tested, tmp_path):
        model, spec = tiny("dense-llama"), inspect_head(saved_head("mtp"))
        load_selected_head(spec, model, None, CPU, tmp_path)
        (entry,) = (tmp_path / "head_variants").iterdir()
        entry.write_text(content)

        load_selected_head(spec, model, None, CPU, tmp_path)

        assert len(tested) == 4

    @pytest.mark.dear
    def test_is_found_with_one_head_in_memory_at_a_time(self, monkeypatch, tmp_path):
        alive, most, loads = WeakSet(), [], []

        def counting(variant, *rest):
            head = load_head(variant, *rest)
            alive.add(head)
            most.append(len(alive))
            loads.append(variant)
            return head

        monkeypatch.setattr(selftest, "load_head", counting)
        spec = inspect_head(saved_head("mtp"))

        load_selected_head(spec, tiny("dense-llama"), None, CPU, tmp_path)

        assert 1 == max(most)
        assert len(spec.variants) + 2 == len(loads)  # each once, and the best again

    def test_is_not_needed_for_a_head_with_one_variant(self, tested, tmp_path):
        load_selected_head(
            replace(inspect_head(saved_head("eagle3")), variants=()), tiny("dense-llama"), None, CPU, tmp_path
        )

        assert not tested
        assert not (tmp_path / "head_variants").exists()

    def test_is_selected_without_a_cache_folder_too(self, tested, tmp_path):
        (tmp_path / "head_variants").write_text("no folder")

        assert load_selected_head(
            inspect_head(saved_head("mtp")), tiny("dense-llama"), None, CPU, tmp_path
        ).hidden_state_layers
        assert len(tested) == 2


def test_tokens_per_step_is_the_mean_accepted_length_and_one():
    assert Agreement((0.1, 0.1), (0.5, 0.5), 8).tokens_per_step == 1.75


def test_the_hidden_state_layers_of_the_target_are_restored():
    target().set_hidden_state_layers((3, 5))
    try:
        self_test(loaded("mtp"), target(), [(1,)])
        assert target().hidden_state_layers == (3, 5)
    finally:
        target().set_hidden_state_layers(())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("eagle3", "norm.weight"), ("eagle3", "midlayer.post_attention_layernorm.weight"),
        ("eagle3", "midlayer.mlp.down_proj.weight"), ("eagle3", "lm_head.weight"),
        ("mtp", "model.layers.3.mlp.up_proj.weight"),
    ],
)  # fmt: skip
def test_a_head_whose_tensors_do_not_fit_together_is_refused(tmp_path, kind, name):
    folder = shutil.copytree(saved_head(kind), tmp_path / "head")
    [file] = folder.glob("*.safetensors")
    tensors = load_file(file)
    save_file({**tensors, name: tensors[name][:1].contiguous()}, file)

    with pytest.raises(ModelError):
        load_selected_head(inspect_head(folder), tiny(), None, CPU, tmp_path / "cache")
