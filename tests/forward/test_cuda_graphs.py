"""CUDA graphs are captured once and replayed at the same addresses."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine import sampling
from specchat.engine.cache_sizes import GRAPH_WIDTHS
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import LogitRows, Sampler, pack_samples
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda.cuda_graphs import CudaGraphs
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.llama_weights import load_llama
from tests.each_row import each_row
from tests.fake_gpu import fake_gpu
from tests.tiny import Chaos, answer, saved, target, write

TEXT = list(range(5, 45))


def graphed(exact: bool = False) -> tuple[LlamaModel, CudaGraphs]:
    model = target("graphs-qwen3", exact=exact)
    assert isinstance(model, LlamaModel) and model.graphs is not None
    return model, model.graphs


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree(tokens[0])
    tree.add_chain(list(tokens[1:]))
    return tree


def test_the_graphs_of_all_widths_are_captured_before_the_first_turn():
    model, graphs = graphed()
    reports = list[tuple[int, int]]()

    model.capture_graphs(lambda done, total: reports.append((done, total)))

    assert len(graphs) == len(GRAPH_WIDTHS) == 13
    assert reports == [(done, 13) for done in range(14)]


@pytest.mark.full
def test_no_turn_captures_after_that():
    model, graphs = graphed()
    model.capture_graphs(lambda *_: None)
    graphs.capture = lambda _run: pytest.fail("captured during a turn")
    for text in (TEXT, TEXT * 20, [3]):  # also after a conversation ended, and beyond what its slot held
        assert len(answer(model, Chaos(2), text, Sampler(0.8, seed=2))) == 40


@pytest.mark.full
def test_a_graph_depends_on_the_number_of_rows_alone():
    model, graphs = graphed()
    one, other = model.pool.open(), model.pool.open()
    with model.pool.acquire_slot(one, 900), model.pool.acquire_slot(other, 900):
        for cache in (one, other):
            while cache.length < 400:
                model.prefill(TEXT[:16], cache)
            for tokens in ([7] * 13, list(range(14)), list(range(16))):
                model.forward(chain(*tokens), cache)

    assert len(graphs) == 1


@each_row("budget, rows", [(1, 2), (5, 6), (6, 6), (7, 8), (8, 8), (9, 10), (16, 16)])
def test_no_draft_token_alone_makes_a_graph_wider(budget, rows):
    """17 rows would compute 24."""
    model, _graphs = graphed()
    writing, drafter = Generation(model), Chaos(1)
    proposed = list[int]()
    drafter.propose = lambda context: proposed.append(context.max_draft_tokens) or DraftTree(context.tokens[-1])
    writing.replace_tokens(TEXT)
    write(writing, GenerationConfig(drafter, Sampler(), budget, 40))

    assert proposed[0] + 1 == rows


def test_captures_write_to_no_text():
    model, _graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        model.prefill(TEXT[:9], cache)
        before = [keys[:, :, :9].clone() for keys, _values in cache.require_slot().layers]
        model.capture_graphs(lambda *_: None)
        after = [keys[:, :, :9] for keys, _values in cache.require_slot().layers]

    assert all(map(torch.equal, before, after))


def test_padding_nodes_have_no_logits():
    model, _graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        assert model.forward(chain(*range(9)), cache).logits.shape == (9, model.vocab_size)


def test_passes_of_two_texts_at_the_same_time_do_not_mix():
    model, _graphs = graphed()
    expected = [answer(target("dense-qwen3"), Drafter(), text, Sampler()) for text in (TEXT, TEXT[::-1])]
    writing = [Generation(model), Generation(model)]
    steps = list[Iterator[Step]]()
    with ExitStack() as slots:
        for each, text in zip(writing, (TEXT, TEXT[::-1]), strict=True):
            each.replace_tokens(text)
            slots.enter_context(model.pool.acquire_slot(each.cache, 500))
            list(each.prefill())
            steps.append(each.decode(GenerationConfig(Drafter(), Sampler(), 0, 40)))
        for _both in zip(*steps, strict=True):
            pass

    assert [each.tokens[len(TEXT) :] for each in writing] == expected


SAMPLED = {"greedy": Sampler(vocab_size=90), "T0.8": Sampler(0.8, seed=3), "T0.8 padded": Sampler(0.8, vocab_size=90)}


@each_row("sampler", SAMPLED)
def test_a_graph_samples_as_the_sampler_does(sampler):
    model, _graphs = graphed()
    cache, rules, tree = model.pool.open(), SAMPLED[sampler], chain(7, 8, 9)
    with model.pool.acquire_slot(cache, 900):
        model.prefill(TEXT, cache)
        rows = rules.rows_of_tree(tree, len(TEXT) + 1)
        expected = rules.rank(model.forward(tree, cache).logits, rows)
        sampled = model.forward_and_sample(tree, cache, rules, rows)

    assert sampled is not None
    assert torch.equal(sampled.samples, pack_samples(expected))


@each_row(
    "sampler",
    [Sampler(0.8, top_k=5), Sampler(0.8, top_p=0.9), Sampler(0.8, min_p=0.1)],
)
def test_other_rules_look_at_the_logits_of_the_graph(sampler):
    model, _graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        assert model.forward_and_sample(chain(7), cache, sampler, LogitRows([0])) is None


def test_a_graph_reads_no_tensor_of_a_cache_that_drops_its_entries():
    model, _graphs = graphed()
    cache, rules = model.pool.open(), Sampler(0.8)
    sampling._all_token_ids.cache_clear()
    with model.pool.acquire_slot(cache, 900):
        assert model.forward_and_sample(chain(7), cache, rules, rules.rows_of_tree(chain(7), 1)) is not None

    assert sampling._all_token_ids.cache_info().currsize == 0


@pytest.mark.full
def test_an_embedding_on_another_device_keeps_the_graphs():
    with fake_gpu() as gpu:
        limits = BatchLimits(prefill_chunk=16, max_rows=32)
        cuda, cpu = torch.device("cuda"), torch.device("cpu")
        apart = load_llama(saved("qwen3"), torch.float32, cuda, 512, limits, embedding_device=cpu)
        assert apart.weights.embedding.device == cpu
        text = answer(apart, Drafter(), TEXT, Sampler())
        assert gpu.replays >= 40

    assert text == answer(target("dense-qwen3"), Drafter(), TEXT, Sampler())


def test_without_memory_for_graphs_decoding_continues(caplog):
    expected = answer(target("dense-qwen3"), Drafter(), TEXT, Sampler())
    calls = []

    def fails(run):
        calls.append(run)
        raise torch.OutOfMemoryError("no memory")

    model = load_llama(
        saved("qwen3"), torch.float32, torch.device("cpu"), 512, BatchLimits(prefill_chunk=16, max_rows=32), fails
    )

    assert answer(model, Drafter(), TEXT, Sampler()) == expected
    assert len(calls) == 1
    assert "no GPU memory is left" in caplog.text


def test_exact_mode_has_one_graph():
    model, graphs = graphed(exact=True)
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for count in (1, 4, 9, 16):
            model.forward(chain(*range(count)), cache)

    assert len(graphs) == 1


@each_row("dtype", [torch.float32, torch.bfloat16])
def test_exact_mode_with_graphs_is_bit_identical_to_plain_decoding(dtype):
    def logits(*tokens: int) -> torch.Tensor:
        model = target("graphs-qwen3", exact=True, dtype=dtype)
        generation = Generation(model)
        generation.replace_tokens(TEXT)
        write(generation, GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=3))
        with model.pool.acquire_slot(generation.cache, 900):
            return model.forward(chain(generation.tokens[-1], *tokens), generation.cache).logits[0]

    assert torch.equal(logits(), logits(4, 5, 6))


@pytest.mark.full
def test_tokens_on_the_device_stay_there():
    model, _graphs = graphed()
    lists, tensors = model.pool.open(), model.pool.open()
    with model.pool.acquire_slot(lists, 900), model.pool.acquire_slot(tensors, 900):
        expected = [model.prefill([token], lists).logits for token in TEXT]
        outputs = [model.prefill(torch.tensor([token]), tensors).logits for token in TEXT]

    assert all(torch.equal(ours, theirs) for ours, theirs in zip(outputs, expected, strict=True))


@pytest.mark.full
def test_a_draft_model_drafts_the_same_with_graphs():
    with_graphs, plain = target("graphs-qwen3"), target("dense-qwen3")
    assert isinstance(with_graphs, LlamaModel)
    one, other = DraftModelDrafter(with_graphs, chain_length=6), DraftModelDrafter(plain, chain_length=6)
    for text in (TEXT, [*TEXT, 3], [*TEXT, 3, 9, 9]):
        context = DraftContext(text, Sampler(), 6, None, plain.pool.open())
        tree = one.propose(context)
        assert (tree.tokens, tree.parents) == ((expected := other.propose(context)).tokens, expected.parents)
        assert len(tree) == 7


def test_a_chain_has_no_tokens_outside_the_vocabulary():
    model = target("graphs-qwen3")
    tree = DraftModelDrafter(model, chain_length=6).propose(
        DraftContext(TEXT, Sampler(vocab_size=40), 6, None, model.pool.open())
    )

    assert len(tree) == 7
    assert max(tree.tokens[1:]) < 40
