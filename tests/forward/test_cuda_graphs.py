"""CUDA graphs are captured once and replayed at the same addresses."""

import pytest
import torch

from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.cache import KVCache
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward import cuda_graphs
from specchat.forward.batch import BatchLimits
from specchat.forward.cuda_graphs import CudaGraphs, kv_bucket
from specchat.forward.llama import LlamaModel
from specchat.models.llama_weights import load_llama
from tests.recorder import recorded
from tests.tiny import answer, saved, target, write

TEXT = list(range(5, 45))


def graphed(exact: bool = False) -> tuple[LlamaModel, CudaGraphs]:
    model = target("graphs-qwen3", exact=exact)
    assert isinstance(model, LlamaModel) and model.graphs is not None
    return model, model.graphs


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree(tokens[0])
    tree.add_chain(list(tokens[1:]))
    return tree


def test_a_pass_of_one_size_is_captured_once():
    model, graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for step in range(20):
            model.forward(chain(7, step, 9), cache)
            cache.commit([0])

    assert len(graphs) == 1


def test_rows_are_padded_to_the_next_size_and_keys_to_the_next_bucket():
    model, graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for tokens in ([7] * 9, list(range(10)), list(range(11)), list(range(12))):  # all in the graph for 12 rows
            model.forward(chain(*tokens), cache)
        assert len(graphs) == 1
        while cache.length < 300:
            model.prefill(TEXT[:16], cache)
        before = len(graphs)
        model.forward(chain(*range(12)), cache)

    assert len(graphs) == before + 1


def test_padding_nodes_have_no_logits():
    model, _graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        assert model.forward(chain(*range(9)), cache).logits.shape == (9, model.vocab_size)


def test_the_graphs_of_a_slot_are_freed_with_it():
    model, graphs = graphed()
    generation = Generation(model)
    generation.replace_tokens(TEXT)
    write(generation, GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=3))
    assert len(graphs) > 0

    generation.close()

    assert len(graphs) == 0


def test_the_least_recently_used_graph_is_dropped(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS_PER_SLOT", 2)
    model, graphs = graphed()
    cache, captures = model.pool.open(), []
    graphs.capture = lambda run: (captures.append(1), recorded(run))[1]
    with model.pool.acquire_slot(cache, 900):
        for width in (1, 2, 1, 3, 1, 2):
            model.forward(chain(*range(width)), cache)

    assert len(graphs) == 2
    assert len(captures) == 4  # 1, 2, 3, and 2 again


def test_without_memory_for_graphs_decoding_continues(caplog):
    expected = answer(target("dense-qwen3"), Drafter(), TEXT, Sampler())
    calls = []

    def fails(run):
        calls.append(run)
        raise torch.OutOfMemoryError("no memory")

    model = load_llama(
        saved("qwen3"), torch.float32, torch.device("cpu"), None, BatchLimits(prefill_chunk=16, max_rows=32), fails
    )

    assert answer(model, Drafter(), TEXT, Sampler()) == expected
    assert len(calls) == 1
    assert "no GPU memory is left" in caplog.text


def test_exact_mode_has_one_graph_over_all_rows_of_the_slot():
    model, graphs = graphed(exact=True)
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for count in (1, 4, 9, 16):
            model.forward(chain(*range(count)), cache)

    assert len(graphs) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exact_mode_with_graphs_is_bit_identical_to_plain_decoding(dtype):
    def logits(*tokens: int) -> torch.Tensor:
        model = target("graphs-qwen3", exact=True, dtype=dtype)
        generation = Generation(model)
        generation.replace_tokens(TEXT)
        write(generation, GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=3))
        with model.pool.acquire_slot(generation.cache, 900):
            return model.forward(chain(generation.tokens[-1], *tokens), generation.cache).logits[0]

    assert torch.equal(logits(), logits(4, 5, 6))


def test_buckets_are_powers_of_two_and_halfway_between():
    assert [kv_bucket(rows) for rows in (1, 256, 257, 384, 385, 512, 1025, 1536, 1537)] == [
        256, 256, 384, 384, 512, 512, 1536, 1536, 2048,
    ]  # fmt: skip


def test_tokens_on_the_device_stay_there():
    model, _graphs = graphed()
    lists, tensors = model.pool.open(), model.pool.open()
    with model.pool.acquire_slot(lists, 900), model.pool.acquire_slot(tensors, 900):
        expected = [model.prefill([token], lists).logits for token in TEXT]
        outputs = [model.prefill(torch.tensor([token]), tensors).logits for token in TEXT]

    assert all(torch.equal(ours, theirs) for ours, theirs in zip(outputs, expected, strict=True))


def drafted_chain(model: LlamaModel, cache: KVCache, token: int, steps: int) -> list[int] | None:
    """A greedy chain after a token, as one graph."""
    tokens = model.draft_chain(torch.tensor([token]), steps, cache, lambda logits: logits.argmax(-1), graph_key=None)
    return tokens.tolist() if tokens is not None else None


def chain_by_passes(model: Model, cache: KVCache, token: int, steps: int) -> list[int]:
    """The same, pass by pass."""
    length, tokens = cache.length, [token]
    for _ in range(steps):
        tokens.append(int(model.prefill(tokens[-1:], cache).logits.argmax()))
    cache.rollback(length)
    return tokens[1:]


@pytest.mark.parametrize("shape", ["graphs-qwen3", "graphs-mistral"])
def test_a_chain_of_draft_tokens_is_one_graph(shape):
    model = target(shape)
    assert isinstance(model, LlamaModel) and model.graphs is not None
    cache, graphs = model.pool.open(), model.graphs
    with model.pool.acquire_slot(cache, 900):
        for text in (TEXT, [9, 9, 4], TEXT[::-1]):  # the second chain starts elsewhere and is a replay
            model.prefill(text, cache)
            expected, length, before = chain_by_passes(model, cache, text[-1], 5), cache.length, len(graphs)
            assert drafted_chain(model, cache, text[-1], 5) == expected
            assert cache.length == length
            assert len(graphs) == before + (text is TEXT)


def test_another_chain_length_or_sampling_is_another_graph():
    model, graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        model.prefill(TEXT, cache)
        before = len(graphs)
        drafted_chain(model, cache, 7, 2)
        drafted_chain(model, cache, 8, 2)
        drafted_chain(model, cache, 7, 3)
        lowest = model.draft_chain(torch.tensor([7]), 2, cache, lambda logits: logits.argmin(-1), graph_key="lowest")
        assert len(graphs) == before + 3
        assert lowest is not None
        assert lowest.tolist() != drafted_chain(model, cache, 7, 2)


def test_a_drafted_chain_is_not_overwritten_by_the_next():
    model, _graphs = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        model.prefill(TEXT, cache)
        first = model.draft_chain(torch.tensor([7]), 4, cache, lambda logits: logits.argmax(-1), graph_key=None)
        assert first is not None
        before = first.tolist()
        model.draft_chain(torch.tensor([60]), 4, cache, lambda logits: logits.argmax(-1), graph_key=None)

    assert first.tolist() == before


def test_without_graphs_or_rows_there_is_no_chain():
    (model, _graphs), dense = graphed(), target("dense-qwen3")
    assert isinstance(dense, LlamaModel)
    for each, rows in ((dense, 900), (model, 20)):
        cache = each.pool.open()
        with each.pool.acquire_slot(cache, rows):
            cache.length = cache.require_slot().rows - 3
            assert drafted_chain(each, cache, 7, 4) is None


def test_a_draft_model_drafts_the_same_with_one_graph_and_pass_by_pass():
    with_graphs, plain = target("graphs-qwen3"), target("dense-qwen3")
    assert isinstance(with_graphs, LlamaModel)
    one, other = DraftModelDrafter(with_graphs, chain_length=6), DraftModelDrafter(plain, chain_length=6)
    for text in (TEXT, [*TEXT, 3], [*TEXT, 3, 9, 9]):
        context = DraftContext(text, Sampler(), 6, None, plain.pool.open())
        tree = one.propose(context)
        assert (tree.tokens, tree.parents) == ((expected := other.propose(context)).tokens, expected.parents)
        assert len(tree) == 7
    assert with_graphs.graphs is not None
    keys = [key for by_key in with_graphs.graphs._graphs_by_slot.values() for key in by_key]
    assert sum(isinstance(key, tuple) and key[2] is None for key in keys) == 1


def test_a_chain_has_no_tokens_outside_the_vocabulary():
    model = target("graphs-qwen3")
    tree = DraftModelDrafter(model, chain_length=6).propose(
        DraftContext(TEXT, Sampler(vocab_size=40), 6, None, model.pool.open())
    )

    assert len(tree) == 7
    assert max(tree.tokens[1:]) < 40
