"""Networks whose memory cannot be taken back: guesses that fall must leave no trace in it."""

import random

import pytest
import torch
import transformers

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.recurrent import RecurrentModel, has_recurrent_layers
from specchat.models.load import LoadOptions, load_model
from tests import tiny

SIZES = tiny.SIZES | {"num_hidden_layers": 4}
DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 12, "linear_value_head_dim": 12}
HYBRID = ["linear_attention"] * 3 + ["full_attention"]
NO_EXPERTS = {"num_experts": 0, "num_experts_per_tok": 1, "mlp_only_layers": [0, 1, 2, 3], "decoder_sparse_step": 1}
CONFIGS = {
    "qwen3_next": lambda: transformers.Qwen3NextConfig(**SIZES, **DELTA, **NO_EXPERTS, layer_types=HYBRID),
    "lfm2": lambda: transformers.Lfm2Config(**SIZES, layer_types=["conv", "conv", "full_attention", "conv"]),
}
PROMPT = [random.Random(1).randrange(1, tiny.VOCABULARY) for _ in range(40)]
SAMPLERS = [Sampler(), Sampler(temperature=1.0, seed=5)]


@pytest.fixture(scope="module", params=CONFIGS)
def network(request):
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param]()).eval()


class Knowing(Drafter):
    """Knows the text that is coming, and spoils a guess now and then: after k right ones comes a wrong one."""

    name = "knowing"

    def __init__(self, text: list[int]) -> None:
        self.text, self.dice = text, random.Random(2)

    def propose(self, context: DraftContext) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        guesses = self.text[len(context.tokens) :][: context.max_draft_tokens]
        if guesses and self.dice.random() < 0.6:
            spoilt = self.dice.randrange(len(guesses))
            guesses[spoilt] = (guesses[spoilt] + 1) % tiny.VOCABULARY
        tree.add_chain(guesses, source=self.name)
        return tree


def written(model, drafter, sampler, limit):
    writing = Generation(model, (drafter,))
    writing.replace_tokens(PROMPT)
    with model.pool.seated(writing.cache, 512):
        list(writing.prefill())
        steps = list(writing.decode(GenerationConfig(drafter, sampler, 5, limit)))
    return writing, steps


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "sampled"])
def test_a_chain_with_replay_writes_the_text_of_plain_decoding(network, sampler):
    plain, steps = written(RecurrentModel(network), Drafter(), sampler, limit=200)
    guessed, fewer = written(RecurrentModel(network), Knowing(plain.tokens), sampler, limit=200)

    assert plain.tokens == guessed.tokens
    assert len(fewer) < 0.6 * len(steps)
    assert any(0 < step.accepted < step.drafted for step in fewer)


def test_a_text_that_is_cut_is_read_anew_and_goes_on_as_before(network):
    model = RecurrentModel(network)
    writing, _ = written(model, Drafter(), Sampler(), limit=12)
    first = list(writing.tokens)
    assert writing.cache.rollback_floor > 20

    writing.replace_tokens(PROMPT[:20] + PROMPT[30:])
    writing.replace_tokens(PROMPT)
    assert 0 == writing.cache.length
    with model.pool.acquire_slot(writing.cache, 512):
        list(writing.prefill())
        list(writing.decode(GenerationConfig(Drafter(), Sampler(), 5, 12)))

    assert first == writing.tokens


def test_two_texts_do_not_disturb_each_other(network):
    model = RecurrentModel(network)
    alone, _ = written(RecurrentModel(network), Drafter(), Sampler(), limit=8)
    writings = [Generation(model), Generation(model)]
    runs = []
    for writing, prompt in zip(writings, (PROMPT, PROMPT[::-1]), strict=True):
        writing.replace_tokens(prompt)
        with model.pool.acquire_slot(writing.cache, 512):
            list(writing.prefill())
        runs.append(writing.decode(GenerationConfig(Drafter(), Sampler(), 0, 8)))
    for _ in range(8):
        for writing, run in zip(writings, runs, strict=True):
            with model.pool.acquire_slot(writing.cache, 512):
                next(run)

    assert alone.tokens == writings[0].tokens


def test_taps_belong_to_the_nodes_and_not_to_what_is_read_again(network):
    model = RecurrentModel(network)
    model.set_hidden_state_layers((2, 3))
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 512):
        model.prefill(PROMPT, cache)
        chain = DraftTree(5)
        chain.add_chain([6, 7, 8])
        model.forward(chain, cache)
        cache.commit([0, 1])  # 7 and 8 fell
        output = model.forward(DraftTree(9), cache)
        fresh = model.pool.open()
        with model.pool.acquire_slot(fresh, 512):
            model.prefill([*PROMPT, 5, 6], fresh)
            expected = model.forward(DraftTree(9), fresh)

    assert (1, 2 * SIZES["hidden_size"]) == output.hidden_states.shape
    torch.testing.assert_close(output.hidden_states, expected.hidden_states, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(output.logits, expected.logits, atol=1e-4, rtol=1e-4)


def test_such_a_network_is_recognised_when_it_is_loaded(network, tmp_path):
    network.save_pretrained(tmp_path)

    model = load_model(tmp_path, LoadOptions(dtype="float32", device="cpu"))

    assert isinstance(model, RecurrentModel)
    assert not model.supports_trees
    assert not has_recurrent_layers(tiny.network("llama"))
    with pytest.raises(ModelError, match="exact"):
        load_model(tmp_path, LoadOptions(dtype="float32", device="cpu", exact=True))
