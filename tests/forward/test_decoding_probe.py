"""The probe finds how a network of transformers can be decoded, and the load remembers it."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch

from specchat.engine.decode import Generation
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.decoding_probe import RECURRENT, build_model, find_form
from specchat.forward.transformers.transformers_model import CHAINS, OWN_CACHE, TREES
from specchat.weights import decoding_forms
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tools import model_zoo
from tools.zoo_networks import tiny_network

FORMS = {
    "gpt2": (TREES, ""),
    "llama4_text": (TREES, ""),  # layers that see chunks of the text only
    "gpt_neo": (CHAINS, "the second branch of a tree differs"),  # a window that counts rows
    "bloom": (OWN_CACHE, "our KV cache does not suit it"),  # ALiBi
    "bamba": (OWN_CACHE, RECURRENT),  # takes positions from its caller
}


@lru_cache
def network(family):
    return tiny_network(family)


@pytest.mark.full
@each_row("family", FORMS)
def test_a_family_is_decoded_in_the_best_form_that_is_right(family):
    form = find_form(network(family), BatchLimits())

    name, reason = FORMS[family]
    assert name == form.name
    assert reason in form.reason


@pytest.mark.full
@each_row("family, name", [("bamba", OWN_CACHE), ("qwen3_moe", TREES), ("gpt2", TREES)])
def test_rounding_to_16_bits_does_not_change_the_form_or_the_weights(family, name):
    rounded = tiny_network(family).to(torch.bfloat16)
    before = {key: each.clone() for key, each in rounded.state_dict().items()}

    assert name == find_form(rounded, BatchLimits()).name
    assert all(torch.equal(each, before[key]) for key, each in rounded.state_dict().items())
    assert {each.dtype for each in rounded.parameters()} == {torch.bfloat16}


def test_two_texts_of_a_recurrent_network_are_those_of_transformers():
    reference, prompts = network("bamba"), ([*range(5, 26)], [*range(60, 40, -1)])
    model = build_model(reference, find_form(reference, BatchLimits()), None, BatchLimits())
    generations = [Generation(model), Generation(model)]
    for generation, prompt in zip(generations, prompts, strict=True):
        generation.replace_tokens(prompt)
    rows = []
    for _step in range(3):  # the texts are read in turn, as in two conversations
        for generation in generations:
            with model.pool.acquire_slot(generation.cache, 64):
                list(generation.prefill())
                root = generation.tokens[-1:]
                rows.append(model.prefill(root, generation.cache).logits[-1])
                generation.tokens.append(int(rows[-1].argmax()))

    for generation, last_row in zip(generations, rows[-2:], strict=True):
        with torch.inference_mode():
            whole = reference(input_ids=torch.tensor([generation.tokens[:-1]]), use_cache=False).logits[0, -1]
        torch.testing.assert_close(last_row, whole, atol=2e-3, rtol=2e-3)


def test_a_window_of_thousands_of_tokens_is_probed_with_a_short_text(monkeypatch):
    from specchat.forward.transformers.transformers_model import TransformersModel

    reference = tiny_network("mistral", sliding_window=4096)
    monkeypatch.setattr(
        TransformersModel, "_attention_masks", lambda self, batch: self._attention_mask(batch.attention_mask)
    )

    form = find_form(reference, BatchLimits())

    assert OWN_CACHE == form.name  # without the mask of its window, the passes over our cache are wrong
    assert 4096 == reference.config.sliding_window


def test_a_network_whose_passes_are_all_wrong_is_refused():
    class Drifting(torch.nn.Module):
        def forward(self, hidden_states):
            self.calls = getattr(self, "calls", 0) + 1
            return hidden_states * (1 + self.calls)

    reference = tiny_network("gpt2")
    reference.transformer.ln_f.register_forward_hook(lambda _module, _inputs, output: drift(output))
    drift = Drifting()

    with pytest.raises(ModelError, match="do not give the logits of the whole text: a prompt differs"):
        find_form(reference, BatchLimits())


@pytest.mark.full
def test_the_form_is_remembered_until_the_model_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    probed = []
    monkeypatch.setattr(decoding_forms, "find_form", lambda *given: probed.append(given) or find_form(*given))
    folder, options = tmp_path / "model", LoadOptions(dtype="float32", device="cpu")
    network("gpt2").save_pretrained(folder)

    load_model(folder, options)
    load_model(folder, options)
    assert 1 == len(probed)

    (stored,) = (tmp_path / "cache" / "decoding-forms").iterdir()
    for damaged in ("", "{", "[]", '{"form": "magic", "reason": ""}'):
        stored.write_text(damaged)
        assert load_model(folder, options).supports_trees
    assert 5 == len(probed)

    tiny_network("gpt2", n_layer=2).save_pretrained(folder)
    load_model(folder, options)
    assert 6 == len(probed)


def test_a_network_that_continues_a_state_with_one_token_only_needs_the_plugin(tmp_path):
    network("jamba").save_pretrained(tmp_path)

    with pytest.raises(ModelError, match="a later part of a prompt differs") as refused:
        load_model(tmp_path, LoadOptions(dtype="float32", device="cpu"))

    assert "pip install ./plugins/specchat-hybrids" in str(refused.value)


@each_row("family", ["lfm2", "bloom"], shares=2)
def test_a_network_over_its_own_cache_decodes_plainly_and_one_line_names_the_plugin(family, tmp_path, capsys):
    network(family).save_pretrained(tmp_path / family)
    model = load_model(tmp_path / family, LoadOptions(dtype="float32", device="cpu"))

    assert 1 == model.max_rows
    lines = [each for each in capsys.readouterr().err.splitlines() if each.startswith("specchat:")]
    assert 1 == len(lines)
    assert "answers are not drafted, because" in lines[0]
    assert "pip install ./plugins/specchat-hybrids" in lines[0]
    assert model_zoo._plain_answer(model)[1]  # also after rollbacks, and where drafters propose
    with pytest.raises(ModelError, match="exact"):
        load_model(tmp_path / family, LoadOptions(dtype="float32", device="cpu", exact=True))


def test_a_pass_that_was_not_committed_leaves_no_trace():
    reference = network("lfm2")
    model = build_model(reference, find_form(reference, BatchLimits()), None, BatchLimits())
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 64):
        model.prefill([5, 6, 7], cache)
        model.forward(DraftTree(8), cache)
        actual = model.forward(DraftTree(9), cache).logits[-1]
        cache.commit([0])

    with torch.inference_mode():
        whole = reference(input_ids=torch.tensor([[5, 6, 7, 9]]), use_cache=False).logits[0, -1]
    torch.testing.assert_close(actual, whole, atol=2e-3, rtol=2e-3)


def test_our_own_passes_are_not_probed(monkeypatch):
    from tests.tiny import saved

    monkeypatch.setattr(decoding_forms, "find_form", pytest.fail)

    load_model(saved("llama"), LoadOptions(dtype="float32"))
