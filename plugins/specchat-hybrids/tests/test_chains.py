"""Networks with recurrent layers: rejected draft tokens leave no trace in their state."""

import random

import pytest
import torch

from specchat.engine import checkpoints
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids import chains
from specchat_hybrids.chains import OwnCacheChains
from tests import tiny
from tools.zoo_networks import tiny_network

SIZES = tiny.SIZES | {"num_hidden_layers": 4}
DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 12, "linear_value_head_dim": 12}
HYBRID = ["linear_attention"] * 3 + ["full_attention"]
NO_EXPERTS = {"num_experts": 0, "num_experts_per_tok": 1, "mlp_only_layers": [0, 1, 2, 3], "decoder_sparse_step": 1}
CONFIGS = {
    "qwen3_next": ("Qwen3NextConfig", SIZES | DELTA | NO_EXPERTS | {"layer_types": HYBRID}),
    "lfm2": ("Lfm2Config", SIZES | {"layer_types": ["conv", "conv", "full_attention", "conv"]}),
}
PROMPT = [random.Random(1).randrange(1, tiny.VOCABULARY) for _ in range(40)]
SAMPLERS = [Sampler(), Sampler(temperature=1.0, seed=5)]


def network_of(family):
    import transformers

    name, sizes = CONFIGS[family]
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**sizes)).eval()


@pytest.fixture(scope="module", params=CONFIGS)
def network(request):
    return network_of(request.param)


class Oracle(Drafter):
    """Drafts the text that follows, and replaces a token now and then."""

    name = "oracle"

    def __init__(self, text: list[int]) -> None:
        self.text, self.random = text, random.Random(2)

    def propose(self, context: DraftContext) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        tokens = self.text[len(context.tokens) :][: context.max_draft_tokens]
        if tokens and self.random.random() < 0.6:
            wrong = self.random.randrange(len(tokens))
            tokens[wrong] = (tokens[wrong] + 1) % tiny.VOCABULARY
        tree.add_chain(tokens, source=self.name)
        return tree


def generated(model, drafter, sampler, limit):
    generation = Generation(model, (drafter,))
    generation.replace_tokens(PROMPT)
    with model.pool.acquire_slot(generation.cache, 512):
        list(generation.prefill())
        steps = list(generation.decode(GenerationConfig(drafter, sampler, 5, limit)))
    return generation, steps


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "sampled"])
def test_chains_with_rejected_drafts_have_the_text_of_plain_decoding(network, sampler):
    plain, steps = generated(OwnCacheChains(network), Drafter(), sampler, limit=200)
    speculative, fewer_steps = generated(OwnCacheChains(network), Oracle(plain.tokens), sampler, limit=200)

    assert plain.tokens == speculative.tokens
    assert len(fewer_steps) < 0.6 * len(steps)
    assert any(0 < step.accepted < step.drafted for step in fewer_steps)


def test_a_network_that_takes_a_cache_of_its_own_class_only_has_the_text_of_plain_decoding():
    network = tiny_network("minimax")
    plain, _steps = generated(OwnCacheChains(network), Drafter(), Sampler(), limit=40)

    speculative, _fewer_steps = generated(OwnCacheChains(network), Oracle(plain.tokens), Sampler(), limit=40)

    assert plain.tokens == speculative.tokens
    assert plain.tokens == network.generate(torch.tensor([PROMPT]), max_new_tokens=40, eos_token_id=-1)[0].tolist()


class CountedRows(OwnCacheChains):
    """Counts the rows of all passes."""

    rows = 0

    def _run_pass(self, state, tokens, rows):
        self.rows += len(tokens)
        return super()._run_pass(state, tokens, rows)


def continued(model, generation, tokens, limit):
    """The answer to a changed text."""
    generation.replace_tokens(tokens)
    with model.pool.acquire_slot(generation.cache, 1024):
        list(generation.prefill())
        list(generation.decode(GenerationConfig(Drafter(), Sampler(), 5, limit)))
    return generation.tokens


@pytest.fixture
def close_checkpoints(monkeypatch):
    for module in (chains, checkpoints):
        monkeypatch.setattr(module, "CHECKPOINT_TOKENS", 16)


@pytest.mark.usefixtures("close_checkpoints")
@pytest.mark.parametrize("kept", [5, 40, 58])
def test_going_back_reads_only_what_is_behind_a_checkpoint(network, kept):
    model = CountedRows(network)
    generation, _ = generated(model, Drafter(), Sampler(), limit=36)
    changed = [*generation.tokens[:kept], *reversed(PROMPT)]
    expected = list(continued(model, Generation(model), changed, limit=12))

    model.rows = 0
    actual = continued(model, generation, changed, limit=12)

    assert expected == actual
    assert model.rows - (len(actual) - kept) <= 16


@pytest.mark.usefixtures("close_checkpoints")
@pytest.mark.parametrize("steps_rows", [True, False], ids=["stepped", "replayed"])
def test_a_text_with_rejected_drafts_goes_back_again_and_again(network, steps_rows):
    model = OwnCacheChains(network, steps_rows=steps_rows)
    plain, _ = generated(model, Drafter(), Sampler(), limit=30)
    generation, steps = generated(model, Oracle(plain.tokens), Sampler(), limit=30)
    assert plain.tokens == generation.tokens
    assert any(step.accepted < step.drafted for step in steps)
    for kept in (60, 52, 33, 2):
        changed = [*generation.tokens[:kept], 7, *PROMPT[:10]]
        expected = list(continued(model, Generation(model), changed, limit=8))
        assert expected == continued(model, generation, changed, limit=8)


def test_another_answer_to_the_same_prompt_reads_one_token(network):
    model = CountedRows(network)
    generation, _ = generated(model, Drafter(), Sampler(), limit=12)
    first, model.rows = list(generation.tokens), 0

    assert first == continued(model, generation, PROMPT, limit=12)
    assert 12 == model.rows


@pytest.mark.usefixtures("close_checkpoints")
def test_checkpoints_of_all_texts_share_a_budget_and_are_counted(network, monkeypatch):
    model = OwnCacheChains(network)
    first, _ = generated(model, Drafter(), Sampler(), limit=60)
    of_one = model.checkpoint_bytes()
    assert 0 < first.cache.network_bytes == model.pool.bytes_of(first.cache)
    monkeypatch.setattr(chains, "MAX_CHECKPOINT_BYTES", of_one)

    second, _ = generated(model, Drafter(), Sampler(), limit=60)

    assert 0 < model.checkpoint_bytes() <= of_one
    assert len(second.cache.checkpoints) > 3
    assert len(first.cache.checkpoints) < len(second.cache.checkpoints)
    expected = list(continued(model, Generation(model), [*PROMPT[:30], 5], limit=8))
    assert expected == continued(model, first, [*PROMPT[:30], 5], limit=8)


def test_two_texts_do_not_disturb_each_other(network):
    model = OwnCacheChains(network)
    alone, _ = generated(OwnCacheChains(network), Drafter(), Sampler(), limit=8)
    generations = [Generation(model), Generation(model)]
    runs = []
    for generation, prompt in zip(generations, (PROMPT, PROMPT[::-1]), strict=True):
        generation.replace_tokens(prompt)
        with model.pool.acquire_slot(generation.cache, 512):
            list(generation.prefill())
        runs.append(generation.decode(GenerationConfig(Drafter(), Sampler(), 0, 8)))
    for _ in range(8):
        for generation, run in zip(generations, runs, strict=True):
            with model.pool.acquire_slot(generation.cache, 512):
                next(run)

    assert alone.tokens == generations[0].tokens


def test_hidden_states_belong_to_the_nodes_and_not_to_replayed_tokens(network):
    model = OwnCacheChains(network)
    model.set_hidden_state_layers((2, 3))
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 512):
        model.prefill(PROMPT, cache)
        chain = DraftTree(5)
        chain.add_chain([6, 7, 8])
        model.forward(chain, cache)
        cache.commit([0, 1])  # 7 and 8 are rejected
        output = model.forward(DraftTree(9), cache)
        fresh = model.pool.open()
        with model.pool.acquire_slot(fresh, 512):
            model.prefill([*PROMPT, 5, 6], fresh)
            expected = model.forward(DraftTree(9), fresh)

    assert (1, 2 * SIZES["hidden_size"]) == output.hidden_states.shape
    torch.testing.assert_close(output.hidden_states, expected.hidden_states, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(output.logits, expected.logits, atol=1e-4, rtol=1e-4)


def test_a_network_with_recurrent_layers_is_recognized_at_load(tmp_path, capsys):
    network_of("lfm2").save_pretrained(tmp_path)

    model = load_model(tmp_path, LoadOptions(dtype="float32", device="cpu"))

    assert isinstance(model, OwnCacheChains)
    assert not model.supports_trees
    assert "specchat:" not in capsys.readouterr().err
    with pytest.raises(ModelError, match="exact"):
        load_model(tmp_path, LoadOptions(dtype="float32", device="cpu", exact=True))
