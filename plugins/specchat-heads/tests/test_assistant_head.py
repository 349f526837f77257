"""Our assistants have the outputs of transformers over the target's keys and values, and draft what they predict."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.selftest import self_test
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat_heads.assistant import Assistant, AssistantHead
from tests.tiny import saved, target
from tests.tiny_heads import CONFIGS, CPU, drafter_of, read, saved_head, tiny_head, writing_of

TEXT = list(range(5, 35))  # longer than the window of the head
SLIDING_LAYER, FULL_LAYER = 2, 1  # the last ones of the target with keys of their own


@pytest.fixture(scope="module", autouse=True)
def _saved_target():
    """Saved before transformers is changed."""
    saved("gemma4")


@pytest.fixture(params=[False, True], ids=["all tokens", "centroids"])
def folder(request, tmp_path, monkeypatch):
    """A random assistant, saved by transformers, some versions of which refuse networks without keys of their own."""
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4TextConfig

    all_are_shared = property(lambda config: ["reuse"] * config.num_hidden_layers)
    monkeypatch.setattr(Gemma4TextConfig, "kv_sharing_modes", all_are_shared)
    torch.manual_seed(3)
    settings = {key: value for key, value in CONFIGS["assistant"].items() if key != "model_type"}
    config = Gemma4AssistantConfig(
        **settings, use_ordered_embeddings=request.param, num_centroids=12, centroid_intermediate_top_k=5
    )
    network = Gemma4AssistantForCausalLM(config)
    for name, weights in (*network.named_parameters(), *network.named_buffers()):
        if name.endswith(("norm.weight", "layer_scalar")):
            torch.nn.init.normal_(weights, mean=1.0, std=0.2)
        if name.endswith("token_ordering"):
            weights.copy_(torch.randperm(len(weights)))
    network.eval().save_pretrained(tmp_path)
    return tmp_path


def steps_of_transformers(folder, model: LlamaModel, cache, states, tokens):
    from transformers import Gemma4AssistantForCausalLM

    network = Gemma4AssistantForCausalLM.from_pretrained(folder).eval()
    shared = {
        kind: tuple(cache.read(layer, cache.length))
        for kind, layer in (("sliding_attention", SLIDING_LAYER), ("full_attention", FULL_LAYER))
    }
    for token in tokens:
        pair = torch.cat((model.embed(torch.tensor([token])), states), dim=-1)[None]
        output = network(inputs_embeds=pair, position_ids=torch.tensor([[cache.length]]), shared_kv_states=shared)
        states = output.last_hidden_state[0]
        yield output.logits[0], states


@pytest.mark.dear
@torch.inference_mode()
def test_a_chain_has_the_logits_and_the_states_of_transformers(folder):
    model = target("dense-gemma4")
    head = load_head(inspect_head(folder), model, torch.float32, CPU)
    assert isinstance(model, LlamaModel)
    assert isinstance(head, AssistantHead)
    cache, given = model.pool.open(), torch.randn(1, 48, generator=torch.Generator().manual_seed(2))
    with model.pool.acquire_slot(cache, 64):
        model.prefill(TEXT[:16], cache)
        model.prefill(TEXT[16:], cache)
        tokens, states = [60, 61, 7], given
        for token, (logits, expected) in zip(
            tokens, steps_of_transformers(folder, model, cache, given, tokens), strict=True
        ):
            output = head.forward(states, torch.tensor([token]), cache)
            states, scored = output.hidden_states, output.logits.isfinite()

            assert torch.allclose(states, expected, atol=2e-4)
            assert torch.allclose(output.logits[scored], logits[scored], atol=2e-4)
            assert output.logits.argmax() == logits.argmax()
            assert cache.length == len(TEXT)


@torch.inference_mode()
def test_paths_of_a_batch_do_not_see_each_other():
    model = target("dense-gemma4")
    head, cache = tiny_head("assistant", model), model.pool.open()
    assert isinstance(head, AssistantHead)
    states, tokens = torch.randn(4, 48, generator=torch.Generator().manual_seed(2)), torch.tensor([8, 9, 10, 11])
    with model.pool.acquire_slot(cache, 64):
        for text in ([7, 8], TEXT[:16]):  # fewer rows than paths, and more
            cache.rollback(0)
            model.prefill(text, cache)
            together = head.forward(states, tokens, cache).logits
            alone = [head.forward(states[each : each + 1], tokens[each : each + 1], cache).logits for each in range(4)]

            assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_the_first_node_is_the_best_token_of_the_head():
    model = target("dense-gemma4")
    drafter = drafter_of("assistant", model)
    writing = writing_of(model, drafter)
    read(writing, TEXT)
    assert isinstance(drafter, Assistant)
    context = DraftContext(writing.tokens, Sampler(), 4, cache=writing.cache)

    tree = drafter.propose(context)
    state = drafter.hidden_states.slice_from(len(TEXT) - 2)
    best = drafter.head.forward(state, torch.tensor(TEXT[-1:]), writing.cache).logits.argmax()

    assert tree.tokens[1] == best
    assert writing.cache.length == len(TEXT) - 1


@pytest.mark.full
def test_a_self_test_asks_it_over_the_keys_of_the_target():
    model = target("dense-gemma4")
    agreement = self_test(tiny_head("assistant", model), model)

    assert agreement.positions > 100
    assert len(agreement.greedy_by_depth) == 3


@pytest.mark.parametrize("shape", ["dense-gemma3", "gemma3"])
def test_a_target_without_such_keys_is_refused_in_one_line(shape):
    with pytest.raises(ModelError, match=r"in our own passes|which the target lacks") as refused:
        tiny_head("assistant", target(shape))
    assert "\n" not in str(refused.value)


def test_a_table_of_tokens_that_lacks_one_is_refused(tmp_path):
    tensors = load_file(saved_head("assistant") / "model.safetensors")
    order = {"masked_embedding.token_ordering": torch.zeros(96, dtype=torch.long)}
    centroids = {"masked_embedding.centroids.weight": torch.ones(12, 20)}
    save_file(tensors | order | centroids, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["assistant"]))

    with pytest.raises(ModelError, match="token_ordering does not list every token"):
        load_head(inspect_head(tmp_path), target("dense-gemma4"), None, CPU)
