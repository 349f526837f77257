"""Every family of our own passes computes what transformers computes, and no drafter changes its text."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.native_ops import native_kernels
from specchat.models.llama_families import FAMILIES
from specchat.models.llama_weights import load_llama
from tests.engine.test_model import branching
from tests.tiny import VARIATIONS, Chaos, answer, network, saved, target

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

    with torch.inference_mode():
        for node in range(len(tree)):
            path = torch.tensor([[*TEXT, 50, *tree.path_tokens(node)]])
            assert torch.allclose(logits[node], network(name)(input_ids=path).logits[0, -1], atol=2e-4), node


@pytest.mark.skipif(native_kernels().library is None, reason="no C++ compiler here")
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
        logits_after(
            load_llama(saved(name), torch.float32, torch.device("cpu"), 512, BatchLimits(), quant_format=weights),
            TEXT,
            DraftTree(50),
        )
        for weights in ("int8", "float")
    )

    assert (eight - floats).norm() < 0.2 * floats.norm()  # a tensor in a wrong place: above 1


def test_every_family_is_tried():
    tried = {json.loads((saved(name) / "config.json").read_text())["model_type"] for name in NAMES}

    assert {"llama", "mistral", "qwen2", "qwen3", *tried} == set(FAMILIES)


def test_an_embedding_is_scaled_as_hidden_state_0_of_transformers():
    with torch.inference_mode():
        states = network("gemma3")(input_ids=torch.tensor([TEXT]), output_hidden_states=True).hidden_states

    assert torch.allclose(target("dense-gemma3").embed(torch.tensor(TEXT)), states[0][0], atol=1e-5)
