"""Every family of our own passes computes what transformers computes, and no drafter changes its text."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.forward.llama.rope import Rope
from specchat.weights.llama_families import FAMILIES, LayerNames, network_config, rope_config, sliding_window
from specchat.weights.llama_manifest import read_dimensions
from specchat.weights.llama_weights import load_llama
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.engine.test_model import branching
from tests.tiny import VARIATIONS, Chaos, answer, network, saved, target

WEIGHTS = "model.safetensors"
TEXT = list(range(5, 45))  # longer than the sliding windows and the chunks of a prefill
NAMES = ["gemma2", "gemma3", *VARIATIONS]


def logits_after(model: Model, text: list[int], tree: DraftTree) -> Tensor:
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 200), torch.inference_mode():
        for start in range(0, len(text), model.prefill_chunk):
            model.prefill(text[start : start + model.prefill_chunk], cache)
        return model.forward(tree, cache).logits


@pytest.mark.parametrize("name", NAMES)
def test_the_nodes_of_a_tree_have_the_logits_of_transformers(name):
    tree = branching()
    logits = logits_after(target(f"dense-{name}"), TEXT, tree)
    expected = network(name, dtype=torch.float64)  # its own rounding in float32 may be the larger one
    if FAMILIES[expected.config.model_type].experts is not None:
        expected.set_experts_implementation("eager")  # the others have no float64

    with torch.inference_mode():
        for node in range(len(tree)):
            path = torch.tensor([[*TEXT, 50, *tree.path_tokens(node)]])
            assert torch.allclose(logits[node], expected(input_ids=path).logits[0, -1].float(), atol=2e-4), node


@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("name", NAMES)
def test_a_node_has_the_bits_that_it_has_alone(name):
    model = target(f"dense-{name}", dtype=torch.bfloat16)
    tree = branching()
    together = logits_after(model, TEXT, tree)

    assert model.is_exact
    assert torch.equal(together[0], logits_after(model, TEXT, DraftTree(50))[0])
    assert answer(model, Chaos(), TEXT, Sampler()) == answer(model, Drafter(), TEXT, Sampler())


@pytest.mark.parametrize("name", NAMES)
def test_eight_bits_are_near_the_floats(name):
    eight, floats = (
        load_llama(saved(name), torch.float32, torch.device("cpu"), 512, BatchLimits(), quant_format=weights)
        for weights in ("int8", "float")
    )
    errors = [
        float((logits_after(eight, TEXT, tree) - (exact := logits_after(floats, TEXT, tree))).norm() / exact.norm())
        for tree in map(DraftTree, (50, 51, 52))
    ]

    # A tie of two experts may fall otherwise for one of the tokens, and without VNNI a CPU keeps seven bits. A tensor
    # in a wrong place: above 1 for each of them.
    assert median(errors) < 0.5, errors


def test_every_family_is_tried():
    tried = {json.loads((saved(name) / "config.json").read_text())["model_type"] for name in NAMES}

    assert {"llama", "mistral", "qwen2", "qwen3", *tried} == set(FAMILIES)


def test_an_embedding_is_scaled_as_hidden_state_0_of_transformers():
    with torch.inference_mode():
        states = network("gemma3")(input_ids=torch.tensor([TEXT]), output_hidden_states=True).hidden_states

    assert torch.allclose(target("dense-gemma3").embed(torch.tensor(TEXT)), states[0][0], atol=1e-5)


@pytest.mark.full
@each_row(
    "model",
    [lambda: target("graphs-gemma4"), lambda: target("dense-gemma4", dtype=torch.float64)],
)
def test_shared_keys_and_per_layer_embeddings_need_no_kernels(model):
    expected = logits_after(target("dense-gemma4"), TEXT, branching())

    assert torch.allclose(logits_after(model(), TEXT, branching()).float(), expected, atol=2e-4)


def test_layers_that_read_the_keys_of_another_have_no_cache_of_their_own():
    assert target("dense-gemma4").pool.layout.shapes == ((2, 12, 12), (2, 16, 16), (2, 12, 12))


@each_row("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_vision_language_checkpoint_runs_alone(tmp_path, prefix):
    tensors = {
        name.replace("model.", prefix, 1): tensor for name, tensor in load_file(saved("gemma3") / WEIGHTS).items()
    }
    save_file(tensors | {"vision_tower.patches.weight": torch.ones(4, 4)}, tmp_path / WEIGHTS)
    text = json.loads((saved("gemma3") / "config.json").read_text())
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    model = load_model(tmp_path, LoadOptions(dtype="float32", device="cpu"))

    assert isinstance(model, LlamaModel)
    few, expected = (logits_after(each, TEXT[:16], DraftTree(50)) for each in (model, target("dense-gemma3")))
    assert torch.allclose(few, expected, atol=1e-5)


def test_what_a_published_gemma_3_config_leaves_out_is_as_in_transformers():
    """The file of gemma-3-4b-it, without the sizes that its class has anyway."""
    from transformers import Gemma3TextConfig

    rope = {"factor": 8.0, "rope_type": "linear"}
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    config = network_config({"model_type": "gemma3", "text_config": text | {"rope_scaling": rope}})
    theirs = Gemma3TextConfig(**text, rope_scaling=rope)

    sizes = read_dimensions(config, Path("gemma"))
    assert (sizes.heads, sizes.kv_heads, sizes.head_size, sizes.vocab_size, sizes.max_position_embeddings) == (
        theirs.num_attention_heads, theirs.num_key_value_heads, theirs.head_dim, theirs.vocab_size,
        theirs.max_position_embeddings,
    )  # fmt: skip
    for layer, kind in enumerate(theirs.layer_types):
        found = Rope.from_config(rope_config(config, layer) or {})
        assert (kind == "sliding_attention") == (sliding_window(config, layer) is not None)
        assert found.theta == theirs.rope_parameters[kind]["rope_theta"]
        assert found.rope_type == theirs.rope_parameters[kind]["rope_type"]


@each_row("name", ["olmo3", "exaone4"])
def test_a_config_of_old_keys_means_the_layers_that_transformers_sees(name):
    theirs = network(name).config
    old = {"model_type": theirs.model_type, "sliding_window": 24, "rope_theta": 10000.0, "num_hidden_layers": 3}
    config = network_config(old | ({"sliding_window_pattern": 2} if name == "exaone4" else {}))

    kinds = ["full_attention" if sliding_window(config, layer) is None else "sliding_attention" for layer in range(3)]
    assert theirs.layer_types == kinds


def test_the_table_of_families_names_rules_and_tensors_that_are_there():
    for family in FAMILIES.values():
        rules = (family.scaling, family.layer_shapes, family.has_window, family.has_rope, family.has_experts)
        assert all(map(callable, rules))
        assert family.activation in ("silu", "gelu_pytorch_tanh")

    assert FAMILIES["exaone4"].names == FAMILIES["olmo2"].names
    assert FAMILIES["exaone4"].names.norms == ("post_attention_layernorm", "post_feedforward_layernorm")
    assert FAMILIES["phi3"].names == LayerNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))
    assert [FAMILIES["gemma3_text"].has_window({}, layer) for layer in (4, 5, 6)] == [True, False, True]
