"""A pass over a tree: each node has the logits of its path."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.cache import KVCache
from specchat.engine.model import FINAL_NORM, Model, select_layers
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits, RowBatch
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.llama_weights import is_llama_like, load_llama
from tests.each_row import each_row
from tests.tiny import SHAPES, network, saved, target

TEXT = list(range(5, 45))  # longer than the sliding windows
TARGETS = [*SHAPES, "dense-llama", "dense-qwen2", "dense-qwen3", "dense-mistral", "graphs-qwen3", "graphs-mistral"]


def branching() -> DraftTree:
    tree = DraftTree(50)
    tree.add_chain([60, 61, 62])
    tree.add_chain([60, 71, 72, 73])
    tree.add_chain([80, 61])
    return tree


def read(model: Model, tokens: list[int], cache: KVCache) -> None:
    for start in range(0, len(tokens), model.prefill_chunk):
        model.prefill(tokens[start : start + model.prefill_chunk], cache)


def alone(shape: str, tokens: list[int]) -> torch.Tensor:
    """Logits after `tokens`, by transformers with no cache. [V]"""
    with torch.inference_mode():
        return network(shape.rsplit("-", maxsplit=1)[-1])(input_ids=torch.tensor([tokens])).logits[0, -1]


@each_row("exact", [False, True])
@each_row("shape", TARGETS, shares=4)
def test_every_node_has_the_logits_of_its_path(shape, exact):
    model, tree = target(shape, exact=exact), branching()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 200):
        read(model, TEXT, cache)
        logits = model.forward(tree, cache).logits

    assert logits.shape == (len(tree), model.vocab_size)
    for node in range(len(tree)):
        expected = alone(shape, [*TEXT, 50, *tree.path_tokens(node)])
        assert torch.allclose(logits[node], expected, atol=2e-4), tree.path_tokens(node)


@each_row("shape", TARGETS)
def test_a_committed_path_equals_a_prefill(shape):
    model, tree = target(shape), branching()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 200):
        read(model, TEXT, cache)
        model.forward(tree, cache)
        cache.commit([0, 1, 4, 5])
        logits = model.forward(DraftTree(90), cache).logits

    assert torch.allclose(logits[0], alone(shape, [*TEXT, 50, 60, 71, 72, 90]), atol=2e-4)


@each_row("shape", ["llama", "gemma3", "dense-llama", "dense-qwen3"])
def test_hidden_states_are_the_residual_stream_and_the_final_norm(shape):
    model = target(shape)
    model.set_hidden_state_layers((0, 2, 3, FINAL_NORM))
    plain = network(shape.split("-")[-1])
    with torch.inference_mode():
        states = plain(input_ids=torch.tensor([TEXT[:10]]), output_hidden_states=True).hidden_states

    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 100):
        features = model.prefill(TEXT[:10], cache).hidden_states

    embedded, second, last, final = features.chunk(4, dim=-1)
    assert torch.allclose(embedded, states[0][0], atol=1e-4)
    assert torch.allclose(second, states[2][0], atol=1e-4)
    assert torch.allclose(final, states[3][0], atol=1e-4)  # transformers gives the last one after the norm only
    with torch.inference_mode():
        assert torch.allclose(plain.get_decoder().norm(last), final, atol=1e-4)


def test_without_layers_there_are_no_hidden_states():
    model = target("llama")
    model.set_hidden_state_layers((1,))
    model.set_hidden_state_layers(())
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 100):
        assert model.prefill(TEXT[:5], cache).hidden_states is None


@each_row("shape", TARGETS)
def test_embeddings_are_the_input_of_the_first_layer(shape):
    with torch.inference_mode():
        plain = network(shape.split("-")[-1])
        states = plain(input_ids=torch.tensor([TEXT[:10]]), output_hidden_states=True).hidden_states

    assert torch.allclose(target(shape).embed(torch.tensor(TEXT[:10])), states[0][0], atol=1e-5)


@each_row("shape", TARGETS)
def test_logits_are_those_of_the_output_matrix(shape):
    hidden = torch.randn(5, 48, generator=torch.Generator().manual_seed(1))

    with torch.inference_mode():
        expected = network(shape.split("-")[-1]).get_output_embeddings()(hidden)

    assert torch.allclose(target(shape).compute_logits(hidden), expected, atol=1e-4)


def test_columns_are_selected_by_layer():
    features = torch.tensor([[0.0, 0.1, 2.0, 2.1, 9.0, 9.1]])

    assert (
        select_layers(features, (0, 2, FINAL_NORM), (FINAL_NORM, 0)).tolist()
        == torch.tensor([[9.0, 9.1, 0.0, 0.1]]).tolist()
    )
    assert select_layers(features, (0, 2, FINAL_NORM), (0, 2, FINAL_NORM)) is features


@pytest.mark.full
@each_row("shape", ["dense-llama", "dense-qwen3", "dense-mistral", "graphs-qwen3", "graphs-mistral"])
def test_an_early_exit_equals_a_network_of_that_depth(shape):
    model = target(shape)
    assert isinstance(model, LlamaModel)
    plain = network(shape.split("-")[-1])
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 200), torch.inference_mode():
        read(model, TEXT, cache)
        states = plain(input_ids=torch.tensor([[*TEXT, 50, 60]]), output_hidden_states=True).hidden_states
        expected = plain.get_output_embeddings()(plain.get_decoder().norm(states[2][0, -1]))
        logits = model.forward_early_exit([50, 60], cache, exit_layer=2)

    assert cache.length == len(TEXT)
    assert torch.allclose(logits[0], expected, atol=2e-4)


def test_the_verifying_pass_overwrites_the_rows_of_an_exit():
    model, tree = target("dense-llama"), branching()
    assert isinstance(model, LlamaModel)
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 200):
        read(model, TEXT, cache)
        before = model.forward(tree, cache).logits.clone()
        model.forward_early_exit([50, 60, 61, 62], cache, exit_layer=2)

        assert torch.equal(model.forward(tree, cache).logits, before)


def test_a_sliding_window_counts_from_the_first_position():
    sees = torch.ones(1, 5, dtype=torch.bool)

    near = RowBatch([7], torch.tensor([104]), sees, committed_length=4, first_position=100).sliding_window_mask(
        sliding_window=3
    )

    assert near.tolist() == [[False, False, True, True, True]]


ROPES = {
    "default": {"rope_type": "default", "rope_theta": 5000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
    },
}  # fmt: skip


@each_row("rope", ROPES)
def test_rope_scalings_are_those_of_transformers(rope, tmp_path):
    import transformers

    config = network("llama").config.to_dict() | {"rope_parameters": ROPES[rope], "num_hidden_layers": 2}
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).eval()
    theirs.save_pretrained(tmp_path)
    ours = load_llama(tmp_path, torch.float32, torch.device("cpu"), None, BatchLimits(prefill_chunk=64))

    cache = ours.pool.open()
    with ours.pool.acquire_slot(cache, 100), torch.inference_mode():
        logits = ours.prefill(TEXT, cache).logits

        assert torch.allclose(logits[0], theirs(input_ids=torch.tensor([TEXT])).logits[0, -1], atol=1e-4)


def test_unsupported_architectures_are_left_to_transformers():
    config = json.loads((saved("llama") / "config.json").read_text())

    assert is_llama_like(config)
    assert not is_llama_like(config | {"model_type": "gpt2"})
    assert not is_llama_like(config | {"hidden_act": "gelu"})
    assert not is_llama_like(config | {"rope_parameters": {"rope_type": "dynamic"}})
    assert not is_llama_like(config | {"rope_parameters": {"rope_type": "yarn"}})
    assert not is_llama_like(config | {"quantization_config": {"load_in_4bit": True}})


def test_a_missing_tensor_is_named(tmp_path):
    tensors = load_file(saved("llama") / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((saved("llama") / "config.json").read_text())

    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_llama(tmp_path, torch.float32, torch.device("cpu"), None, BatchLimits())
