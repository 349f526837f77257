"""Passes that are recorded once and replayed at the same addresses."""

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


def test_a_pass_of_a_width_is_recorded_once():
    model, recordings = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for step in range(20):
            model.forward(chain(7, step, 9), cache)
            cache.commit([0])

    assert len(recordings) == 1


def test_widths_are_padded_to_the_next_and_keys_to_the_next_bucket():
    model, recordings = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for tokens in ([7] * 9, list(range(10)), list(range(11)), list(range(12))):  # a width of 12 holds them all
            model.forward(chain(*tokens), cache)
        assert len(recordings) == 1
        while cache.length < 300:
            model.prefill(TEXT[:16], cache)
        before = len(recordings)
        model.forward(chain(*range(12)), cache)

    assert len(recordings) == before + 1


def test_an_idle_node_is_no_answer():
    model, _recordings = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        assert model.forward(chain(*range(9)), cache).logits.shape == (9, model.vocab_size)


def test_recordings_of_a_slot_go_with_it():
    model, recordings = graphed()
    writing = Generation(model)
    writing.replace_tokens(TEXT)
    write(writing, GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=3))
    assert len(recordings) > 0

    writing.close()

    assert len(recordings) == 0


def test_the_recording_that_was_used_longest_ago_makes_way(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "MOST_RECORDINGS", 2)
    model, recordings = graphed()
    cache, recorded_anew = model.pool.open(), []
    recordings.capture = lambda run: (recorded_anew.append(1), recorded(run))[1]
    with model.pool.acquire_slot(cache, 900):
        for width in (1, 2, 1, 3, 1, 2):
            model.forward(chain(*range(width)), cache)

    assert len(recordings) == 2
    assert len(recorded_anew) == 4  # 1, 2, 3, and 2 again


def test_without_memory_for_recordings_the_text_goes_on(caplog):
    expected = answer(target("dense-qwen3"), Drafter(), TEXT, Sampler())
    calls = []

    def breaks(run):
        calls.append(run)
        raise torch.OutOfMemoryError("no memory")

    model = load_llama(
        saved("qwen3"), torch.float32, torch.device("cpu"), None, BatchLimits(prefill_chunk=16, max_rows=32), breaks
    )

    assert answer(model, Drafter(), TEXT, Sampler()) == expected
    assert len(calls) == 1
    assert "no memory left" in caplog.text


def test_exact_mode_looks_at_all_rows_of_the_slot_in_one_width():
    model, recordings = graphed(exact=True)
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        for count in (1, 4, 9, 16):
            model.forward(chain(*range(count)), cache)

    assert len(recordings) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exact_mode_is_bit_equal_to_plain_decoding_when_replayed(dtype):
    def logits(*tokens: int) -> torch.Tensor:
        model = target("graphs-qwen3", exact=True, dtype=dtype)
        writing = Generation(model)
        writing.replace_tokens(TEXT)
        write(writing, GenerationConfig(Drafter(), Sampler(), max_draft_tokens=0, max_new_tokens=3))
        with model.pool.acquire_slot(writing.cache, 900):
            return model.forward(chain(writing.tokens[-1], *tokens), writing.cache).logits[0]

    assert torch.equal(logits(), logits(4, 5, 6))


def test_a_text_that_does_not_end_with_its_slot_has_a_bucket():
    assert [kv_bucket(rows) for rows in (1, 256, 257, 384, 385, 512, 1025, 1536, 1537)] == [
        256, 256, 384, 384, 512, 512, 1536, 1536, 2048,
    ]  # fmt: skip


def test_tokens_that_are_on_the_device_are_read_there():
    model, _recordings = graphed()
    lists, tensors = model.pool.open(), model.pool.open()
    with model.pool.acquire_slot(lists, 900), model.pool.acquire_slot(tensors, 900):
        expected = [model.prefill([token], lists).logits for token in TEXT]
        found = [model.prefill(torch.tensor([token]), tensors).logits for token in TEXT]

    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def walked(model: LlamaModel, cache: KVCache, token: int, links: int) -> list[int] | None:
    """The likeliest tokens behind one, in one recording."""
    tokens = model.draft_chain(torch.tensor([token]), links, cache, lambda logits: logits.argmax(-1), graph_key=None)
    return tokens.tolist() if tokens is not None else None


def looped(model: Model, cache: KVCache, token: int, links: int) -> list[int]:
    """The same, a pass at a time."""
    length, tokens = cache.length, [token]
    for _ in range(links):
        tokens.append(int(model.prefill(tokens[-1:], cache).logits.argmax()))
    cache.rollback(length)
    return tokens[1:]


@pytest.mark.parametrize("shape", ["graphs-qwen3", "graphs-mistral"])
def test_a_chain_of_guesses_is_one_recording(shape):
    model = target(shape)
    assert isinstance(model, LlamaModel) and model.graphs is not None
    cache, recordings = model.pool.open(), model.graphs
    with model.pool.acquire_slot(cache, 900):
        for text in (TEXT, [9, 9, 4], TEXT[::-1]):  # the second chain begins elsewhere, and is a replay
            model.prefill(text, cache)
            expected, length, before = looped(model, cache, text[-1], 5), cache.length, len(recordings)
            assert walked(model, cache, text[-1], 5) == expected
            assert cache.length == length
            assert len(recordings) == before + (text is TEXT)


def test_chains_of_other_lengths_and_other_picks_are_other_recordings():
    model, recordings = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        model.prefill(TEXT, cache)
        before = len(recordings)
        walked(model, cache, 7, 2)
        walked(model, cache, 8, 2)
        walked(model, cache, 7, 3)
        least = model.draft_chain(torch.tensor([7]), 2, cache, lambda logits: logits.argmin(-1), graph_key="least")
        assert len(recordings) == before + 3
        assert least is not None
        assert least.tolist() != walked(model, cache, 7, 2)


def test_what_was_walked_stays_when_the_next_is():
    model, _recordings = graphed()
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 900):
        model.prefill(TEXT, cache)
        first = model.draft_chain(torch.tensor([7]), 4, cache, lambda logits: logits.argmax(-1), graph_key=None)
        assert first is not None
        kept = first.tolist()
        model.draft_chain(torch.tensor([60]), 4, cache, lambda logits: logits.argmax(-1), graph_key=None)

    assert first.tolist() == kept


def test_without_recordings_or_rows_nobody_walks():
    (model, _recordings), dense = graphed(), target("dense-qwen3")
    assert isinstance(dense, LlamaModel)
    for each, rows in ((dense, 900), (model, 20)):
        cache = each.pool.open()
        with each.pool.acquire_slot(cache, rows):
            cache.length = cache.require_slot().rows - 3
            assert walked(each, cache, 7, 4) is None


def test_a_draft_guesses_the_same_with_one_recording_as_link_by_link():
    recording, plain = target("graphs-qwen3"), target("dense-qwen3")
    assert isinstance(recording, LlamaModel)
    one, other = DraftModelDrafter(recording, chain_length=6), DraftModelDrafter(plain, chain_length=6)
    for text in (TEXT, [*TEXT, 3], [*TEXT, 3, 9, 9]):
        context = DraftContext(text, Sampler(), 6, None, plain.pool.open())
        tree = one.propose(context)
        assert (tree.tokens, tree.parents) == ((expected := other.propose(context)).tokens, expected.parents)
        assert len(tree) == 7
    assert recording.graphs is not None
    kinds = [key for recordings in recording.graphs._graphs_by_slot.values() for key in recordings]
    assert sum(isinstance(key, tuple) and key[2] is None for key in kinds) == 1


def test_a_draft_that_may_not_pick_padding_walks_so():
    model = target("graphs-qwen3")
    tree = DraftModelDrafter(model, chain_length=6).propose(
        DraftContext(TEXT, Sampler(vocab_size=40), 6, None, model.pool.open())
    )

    assert len(tree) == 7
    assert max(tree.tokens[1:]) < 40
