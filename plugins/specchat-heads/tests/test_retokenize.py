"""A draft model with another tokenizer."""

from copy import deepcopy
from dataclasses import replace

import pytest
from character_tokenizer import Letters
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.chat.request import Request
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.transformers_model import TransformersModel
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat.text.tokenizer import Tokenizer
from specchat_heads.retokenize import IncrementalTokenizer, RetokenizedDraftModel
from tests.engine_answers import measure_answer
from tests.tiny import answer, network, small, speaking, target, write
from tests.tokenizers_at_hand import byte_level

SHIFT = 7
FOX = "the quick brown fox, the lazy dog; the hills over the fox"


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Tokenizer:
    """A byte-level tokenizer whose tokens are words and parts of them."""
    return Tokenizer(byte_level(tmp_path_factory.mktemp("words")))


def respelled(shift: int) -> Model:
    """The network of `target()` with its vocabulary in another order: the same text in other tokens."""
    other = deepcopy(network("llama"))
    for table in (other.get_input_embeddings(), other.get_output_embeddings()):
        table.weight.data = table.weight.data.roll(-shift, 0)
    return TransformersModel(other, limits=BatchLimits(prefill_chunk=16))


def draft_text_of(drafter: RetokenizedDraftModel) -> bytes:
    return b"".join(map(drafter.draft_text.tokenizer.token_bytes, drafter.draft_text.tokens))


def test_a_draft_model_that_writes_the_same_text_is_always_accepted():
    drafter = RetokenizedDraftModel(respelled(SHIFT), Letters(SHIFT), Letters(), chain_length=5)
    writing = Generation(target(), (drafter,))
    writing.replace_tokens([7, 3, 9, 12] * 6)

    steps = write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=40))

    assert all(step.accepted == 4 for step in steps[:-1])


def test_the_draft_is_the_output_without_its_last_token(words):
    drafter, letters = RetokenizedDraftModel(small(), Letters(), words, chain_length=8), Letters()
    text = words.encode_continuation(FOX)

    tree = drafter.propose(DraftContext(text, Sampler(), 16))

    written = answer(small(), Drafter(), letters.encode_continuation(FOX), Sampler(), limit=8)
    assert tree.tokens[1:] == words.encode_continuation(b"".join(map(letters.token_bytes, written)).decode())[:-1]
    assert tree.is_chain


@pytest.mark.parametrize("budget", [0, 1, 3, 16])
def test_the_budget_is_kept(budget):
    drafter = RetokenizedDraftModel(small(), Letters(3), Letters(), chain_length=9)

    assert len(drafter.propose(DraftContext([5, 6, 7], Sampler(), budget))) == min(budget, 8) + 1


def test_inside_a_character_it_drafts_nothing(words):
    drafter, text = RetokenizedDraftModel(small(), Letters(), words), words.encode_continuation("fox €")

    assert len(drafter.propose(DraftContext(text[:-1], Sampler(), 8))) == 1


def test_nothing_is_drafted_behind_a_stop_token():
    ids = Letters(SHIFT).encode_continuation("a fox")
    first = answer(small(), Drafter(), ids, Sampler(), limit=1)
    drafter = RetokenizedDraftModel(small(), Letters(SHIFT), Letters(), stop_token_ids=frozenset(first))

    assert len(drafter.propose(DraftContext(Letters().encode_continuation("a fox"), Sampler(), 8))) == 1


def test_cached_tokens_are_not_computed_twice():
    drafter, reads = RetokenizedDraftModel(small(), Letters(SHIFT), Letters(), chain_length=2), list[int]()
    text = [5, 6, 7, 8, 9] * 8
    drafter.propose(DraftContext(text, Sampler(), 8))
    read = drafter.model.prefill
    drafter.model.prefill = lambda tokens, cache: reads.append(len(tokens)) or read(tokens, cache)

    drafter.propose(DraftContext([*text, 11, 12], Sampler(), 8))

    assert reads == [2, 1]


def test_only_committed_tokens_stay_in_its_cache():
    drafter = RetokenizedDraftModel(small(), Letters(SHIFT), Letters(), chain_length=4)

    drafter.propose(DraftContext([5, 6, 7], Sampler(), 8))

    assert drafter.cache.length == 3


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_truncated_text_is_drafted_like_a_new_one(cut):
    drafter, text = RetokenizedDraftModel(small(), Letters(SHIFT), Letters()), [5, 6, 7, 8, 9, 10] * 5
    drafter.propose(DraftContext(text, Sampler(), 8))
    other = [*text[:cut], 40, 41, 42]

    drafter.forget(cut)

    fresh = RetokenizedDraftModel(small(), Letters(SHIFT), Letters()).propose(DraftContext(other, Sampler(), 8))
    assert drafter.propose(DraftContext(other, Sampler(), 8)).tokens == fresh.tokens


def test_beyond_its_context_window_and_without_memory_it_drafts_nothing():
    narrow, poor = (RetokenizedDraftModel(small(), Letters(), Letters()) for _ in range(2))
    narrow.model.context_window, poor.model.pool.budget_bytes = 4, 10

    assert len(narrow.propose(DraftContext([5, 6, 7, 8], Sampler(), 8))) == 1
    assert len(poor.propose(DraftContext([5, 6, 7, 8], Sampler(), 8))) == 1


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 40), st.text("the fox\n€ä🙂", max_size=30)), max_size=6))
def test_incremental_tokens_are_tokens_of_the_text(words, edits):
    spelling, text = IncrementalTokenizer(words), ""
    for cut, more in edits:
        spelling.truncate(len(text[:cut].encode()))
        text = text[:cut] + more
        spelling.update(text.encode())

    assert b"".join(map(words.token_bytes, spelling.tokens)) == text.encode()


def test_a_growing_text_is_tokenized_like_a_complete_one(words):
    grown, whole, text = IncrementalTokenizer(words), IncrementalTokenizer(words), (FOX * 4).encode()
    for size in range(0, len(text), 5):
        grown.update(text[:size])
    grown.update(text)
    whole.update(text)

    assert grown.tokens == whole.tokens


def test_two_real_tokenizers_agree_on_the_text(words, tmp_path):
    short = Tokenizer(byte_level(tmp_path, size=280))
    drafter = RetokenizedDraftModel(
        TransformersModel(network("llama", layers=1, seed=2, vocabulary=400), limits=BatchLimits(prefill_chunk=16)),
        short,
        words,
    )

    tree = drafter.propose(DraftContext(words.encode_continuation(FOX), Sampler(), 8))

    assert draft_text_of(drafter) == FOX.encode()
    assert all(token < words.vocab_size for token in tree.tokens)


def test_in_an_engine_a_draft_model_with_other_tokens_writes_the_text_of_plain_decoding(tmp_path):
    folder = byte_level(tmp_path / "draft", size=300)
    network("llama", vocabulary=300).save_pretrained(folder)
    own = {"models.target": str(speaking()), "models.heads": [], "models.draft": str(folder)}
    engine, request = load_engine(Profile().override(own)), Request("why why why", max_tokens=12, seed=2)

    plain, drafted = (measure_answer(engine, replace(request, variant=name)) for name in ("plain", "retokenized"))

    assert plain.text == drafted.text
    assert sum(len(step.draft_tokens) for step in drafted.steps) > 0
    assert "draft" not in engine.variants
