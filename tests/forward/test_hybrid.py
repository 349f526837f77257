"""Hybrid networks in our own passes: a state never shows what was rejected, or what was there before a rollback."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.llama import hybrid
from specchat.forward.llama.hybrid import HybridModel
from specchat.forward.native.native_ops import native_kernels
from specchat.weights.llama_weights import load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.tiny import HYBRIDS, VOCABULARY, network, saved, target

PROMPT = [random.Random(1).randrange(1, VOCABULARY) for _ in range(40)]
FLOATS = LoadOptions(dtype="float32", device="cpu")


class Oracle(Drafter):
    """Drafts a wrong branch, and after it the right one with a wrong end."""

    name = "oracle"

    def __init__(self, text: list[int]) -> None:
        self.text = text

    def propose(self, context: DraftContext) -> DraftTree:
        tree, right = DraftTree(context.tokens[-1]), self.text[len(context.tokens) :][:4]
        wrong = [(token + 1) % VOCABULARY for token in right]
        tree.add_chain(wrong[:2])
        tree.add_chain([*right[:3], *wrong[3:]])
        return tree


def extended(model, generation, tokens, drafter, limit, sampler=None):
    """The text after an answer to these tokens."""
    generation.replace_tokens(list(tokens))
    with model.pool.acquire_slot(generation.cache, 1024):
        list(generation.prefill())
        list(generation.decode(GenerationConfig(drafter, sampler or Sampler(), 8, limit)))
    return list(generation.tokens)


def logits_after(model, tokens):
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 128), torch.inference_mode():
        model.prefill(tokens, cache)
        return model.forward(DraftTree(9), cache).logits


@pytest.fixture
def close_checkpoints(monkeypatch):
    monkeypatch.setattr(hybrid, "CHECKPOINT_TOKENS", 16)


@each_row("name", HYBRIDS)
def test_a_pass_after_a_committed_branch_continues_that_branch(name):
    model = target(f"dense-{name}")
    cache, tree = model.pool.open(), DraftTree(7)
    tree.add_chain([1, 2, 3])
    tree.add_chain([4, 5, 6], parent=1)
    with model.pool.acquire_slot(cache, 128), torch.inference_mode():
        model.prefill(PROMPT, cache)
        model.forward(tree, cache)
        cache.commit([0, 1, 4, 5])
        actual = model.forward(DraftTree(9), cache).logits[0]
        text = torch.tensor([[*PROMPT, 7, 1, 4, 5, 9]])
        expected = network(name)(input_ids=text).logits[0, -1]

    # Random layers amplify the rounding of a CPU (1e-7) to 6e-4; a state that missed a token differs by 0.1 and more.
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.full
@pytest.mark.usefixtures("close_checkpoints")
@each_row("name", HYBRIDS)
def test_a_text_with_rejected_drafts_goes_back_again_and_again(name):
    model = target(f"dense-{name}")
    generation = Generation(model)
    text = extended(model, Generation(model), PROMPT, Drafter(), limit=40)
    assert text == extended(model, generation, PROMPT, Oracle(text), limit=40)
    for kept in (77, 60, 52, 33, 2):
        changed = [*text[:kept], 1 + text[kept] % (VOCABULARY - 1), *PROMPT[:10]]
        expected = extended(model, Generation(model), changed, Drafter(), limit=8)
        assert expected == extended(model, generation, changed, Oracle(expected), limit=8)


@pytest.mark.full
@pytest.mark.usefixtures("close_checkpoints")
@each_row("kept", [2, 40, 47, 63, 64, 71, 72, 74, 75, 76])
def test_what_is_kept_of_a_text_does_not_depend_on_drafts(kept):
    model = target("dense-qwen3_5")
    lengths, text = set[int](), extended(model, Generation(model), PROMPT, Drafter(), limit=36)
    for drafter in (Drafter(), Oracle(text)):
        generation = Generation(model)
        assert text == extended(model, generation, PROMPT, drafter, limit=36)
        lengths.add(generation.replace_tokens([*text[:kept], 0, *PROMPT]))

    assert len(lengths) == 1
    assert kept - 16 <= lengths.pop() <= kept


def test_another_answer_to_the_same_prompt_reads_one_token():
    model, generation = target("dense-qwen3_5"), Generation(target("dense-qwen3_5"))
    text = extended(generation.target, generation, PROMPT, Drafter(), limit=12)

    assert len(PROMPT) - 1 == generation.replace_tokens(list(PROMPT))
    assert text == extended(model, Generation(model), PROMPT, Drafter(), limit=12)


@pytest.mark.usefixtures("close_checkpoints")
def test_checkpoints_of_all_texts_share_a_budget_and_are_counted(monkeypatch):
    model = target("dense-qwen3_5")
    assert isinstance(model, HybridModel)
    first, second = Generation(model), Generation(model)
    extended(model, first, PROMPT, Drafter(), limit=60)
    of_one = model.checkpoint_bytes()
    assert of_one + model.state_bytes == first.cache.network_bytes
    assert model.pool.bytes_of(first.cache) == first.cache.slot.bytes + first.cache.network_bytes
    monkeypatch.setattr(hybrid, "MAX_CHECKPOINT_BYTES", of_one)

    extended(model, second, PROMPT, Drafter(), limit=60)

    assert 0 < model.checkpoint_bytes() <= of_one
    assert len(first.cache.checkpoints) < len(second.cache.checkpoints)
    changed = [*PROMPT[:30], 5]
    expected = extended(model, Generation(model), changed, Drafter(), limit=8)
    assert expected == extended(model, first, changed, Drafter(), limit=8)


@pytest.mark.usefixtures("native_library")
def test_rows_of_a_prompt_are_those_of_decoding():
    """In bfloat16 too, as long as torch does not compute the attention of the prompt."""
    model = target("dense-qwen3_5", dtype=torch.bfloat16)
    whole, stepped = model.pool.open(), model.pool.open()
    with model.pool.acquire_slot(whole, 128), model.pool.acquire_slot(stepped, 128):
        model.prefill(PROMPT, whole)
        for token in PROMPT:
            model.forward(DraftTree(token), stepped)
            stepped.commit([0])
        logits = [model.forward(DraftTree(9), cache).logits for cache in (whole, stepped)]

    assert torch.equal(*logits)


@each_row("exact", [False, True])
def test_a_checkpoint_loads_into_our_own_passes(exact):
    model = load_model(saved("qwen3_5"), LoadOptions(dtype="bfloat16", device="cpu", exact=exact))

    assert isinstance(model, HybridModel)
    assert model.is_exact or native_kernels().library is None
    assert not model.supports_self_drafting
    assert not model.pool.layout.has_all_layers


@each_row("weights", ["int8", "nf4", "fp8"])
def test_quantized_weights_load_and_are_near_the_floats(weights):
    floats, quantized = (
        load_llama(saved("qwen3_5"), torch.float32, torch.device("cpu"), 512, BatchLimits(), quant_format=each)
        for each in ("float", weights)
    )
    logits = [logits_after(model, PROMPT) for model in (floats, quantized)]

    assert quantized.bytes < floats.bytes
    assert (logits[0] - logits[1]).norm() < 0.4 * logits[0].norm()


def test_keys_and_values_may_be_in_eight_bits():
    floats, eight = (target("dense-qwen3_5", has_int8_kv=each) for each in (False, True))

    assert eight.pool.layout.bytes_per_row < floats.pool.layout.bytes_per_row
    torch.testing.assert_close(logits_after(eight, PROMPT), logits_after(floats, PROMPT), atol=0.3, rtol=0.1)


def test_the_text_part_of_a_vision_language_checkpoint_runs_alone(tmp_path):
    tensors = load_file(saved("qwen3_5") / "model.safetensors")
    renamed = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}
    save_file(renamed | {"model.visual.patches.weight": torch.ones(4, 4)}, tmp_path / "model.safetensors")
    text = json.loads((saved("qwen3_5") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": text}))

    model, expected = load_model(tmp_path, FLOATS), load_model(saved("qwen3_5"), FLOATS)

    assert isinstance(model, HybridModel)
    few, other = (extended(each, Generation(each), PROMPT, Drafter(), limit=4) for each in (model, expected))
    assert few == other
