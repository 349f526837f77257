"""Suffix decoding: drafts from the longest matching context."""

from itertools import takewhile
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.drafters.native_suffix import NativeSuffix
from specchat.drafters.suffix_contexts import MAX_MATCHES, TEXT_END, SuffixArray, TextIndex, find_contexts
from specchat.drafters.suffix_decoding import PAST_ANSWERS, PastTextIndex, SuffixDecoding, add_continuations
from specchat.engine.accept import accept
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.native.native_ops import NativeKernels, native_kernels


def propose(tokens: list[int], budget: int = 16) -> DraftTree:
    return SuffixDecoding().propose(DraftContext(tokens, Sampler(), budget))


def best_contexts(text: list[int], deepest: int) -> list[tuple[int, int]]:
    """(matched, end) of every position whose last token is the last of the text, by comparing all of them."""
    found: list[tuple[int, int]] = []
    for end in range(1, len(text)):
        pairs = zip(reversed(text[max(end - deepest, 0) : end]), reversed(text), strict=False)
        matched = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if matched:
            found.append((matched, end))
    return sorted(found, key=lambda place: (-place[0], -place[1]))


texts = st.lists(st.integers(0, 2), max_size=60)


@given(texts)
def test_the_longest_contexts_are_found_and_the_latest_of_equals(text):
    index = TextIndex(max_context=6)
    index.extend(text)

    found = [(place.matched_tokens, place.next_index) for place in index.find(max_matches=3)]

    assert found == best_contexts(text, deepest=6)[:3]


@given(st.lists(st.tuples(st.integers(0, 80), st.lists(st.integers(0, 2), max_size=40)), max_size=8))
def test_an_index_that_grew_and_shrank_has_the_text(edits):
    index, text = TextIndex(), list[int]()
    for cut, more in edits:
        text = text[:cut]
        index.truncate(len(text))
        text = text + more
        index.extend(text)

    assert index.numbers.tolist() == text


@pytest.mark.skipif(native_kernels().library is None, reason="no native kernels")
@given(st.lists(texts, max_size=4), st.lists(st.integers(0, 2), min_size=1, max_size=70), st.integers(0, 40))
def test_one_native_call_drafts_what_python_does(others, text, budget):
    index, past = TextIndex(), SuffixArray(others)
    index.extend(text)
    expected = DraftTree(text[-1])
    add_continuations(expected, find_contexts(index, past), budget)

    drafted = list(NativeSuffix.here().draft(index, past, budget))

    assert [token for token, _parent, _is_own in drafted] == expected.tokens[1:]
    assert [parent for _token, parent, _is_own in drafted] == expected.parents[1:]
    assert [is_own for _token, _parent, is_own in drafted] == [each != PAST_ANSWERS for each in expected.sources[1:]]


def test_without_native_kernels_the_same_is_drafted(monkeypatch):
    text = [1, 2, 3, 70, 9, 1, 2, 3, 80, 8, 1, 2, 3]
    drafted = propose(text)
    monkeypatch.setattr("specchat.drafters.native_suffix.native_kernels", lambda: NativeKernels(None, "off"))

    alone = propose(text)

    assert (alone.tokens, alone.parents, alone.sources) == (drafted.tokens, drafted.parents, drafted.sources)


def test_the_most_frequent_continuation_is_drafted_first():
    text = [1, 2, 3, 70, 9, 1, 2, 3, 80, 8, 1, 2, 3, 70, 7, 1, 2, 3, 70, 6, 1, 2, 3]

    tree = propose(text, budget=2)

    assert [tree.path_tokens(node) for node in (1, 2)] == [[70], [80]]


def test_a_longer_context_outweighs_many_short_ones():
    text = [5, 1, 2, 70] + [6, 1, 2, 80] * 3 + [5, 1, 2]

    assert propose(text, budget=1).tokens[1] == 70


def test_a_longer_match_gives_a_longer_draft():
    short, long = [*range(50, 450), 1, *range(50, 52)], [*range(50, 450), 1, *range(50, 58)]

    assert 10 < len(propose(short, budget=400)) < len(propose(long, budget=400)) < 400


def test_a_repeated_text_is_drafted_almost_completely():
    text = [Random(3).randrange(200) for _ in range(120)]
    drafter, known, drafted, accepted = SuffixDecoding(), text + text[:8], 0, 0
    while len(known) < 2 * len(text):
        tree = drafter.propose(DraftContext(known, Sampler(), min(8, 2 * len(text) - len(known))))
        path = accept(tree, [(text * 3)[len(known) + depth] for depth in tree.depths])
        drafted, accepted = drafted + len(tree) - 1, accepted + len(path) - 1
        known = known + (text * 2)[len(known) : len(known) + len(path)]

    assert accepted >= 0.9 * drafted > 0


@pytest.mark.parametrize("text", [[4], [4, 5], [0] * 500, [0, 1] * 300, [2**31 - 1, 0] * 40])
@pytest.mark.parametrize("budget", [0, 1, 5, 16])
def test_the_budget_is_kept_on_any_text(text, budget):
    assert len(propose(text, budget)) <= budget + 1


def test_repeats_fill_the_budget():
    assert propose([0] * 500, budget=16).path_tokens(16) == [0] * 16


def test_many_equal_positions_do_not_hide_a_longer_context():
    text = [9, 1, 70] + [8, 1, 80] * (3 * MAX_MATCHES) + [9, 1]

    assert propose(text, budget=1).tokens[1] == 70


def test_a_truncated_text_is_forgotten():
    drafter = SuffixDecoding()
    drafter.propose(DraftContext([1, 2, 3, 4, 5, 1, 2], Sampler(), 8))

    drafter.forget(2)

    assert drafter.propose(DraftContext([1, 2, 9, 8, 1, 2], Sampler(), 2)).tokens[1:] == [9, 8]


def recalled(*texts: list[int]) -> PastTextIndex:
    recall = PastTextIndex(lambda: texts, quiet_seconds=0.0)
    recall.refresh()
    recall.wait()
    return recall


def test_texts_of_other_conversations_are_drafted():
    drafter = SuffixDecoding(recalled([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11]))

    assert drafter.propose(DraftContext([60, 1, 2, 3, 4], Sampler(), 8)).tokens[1:] == [5, 6]
    drafter.forget(1)
    assert drafter.propose(DraftContext([60, 7, 8, 9, 10], Sampler(), 8)).tokens[1:] == [11]


def test_draft_tokens_from_other_conversations_have_a_source_of_their_own():
    drafter = SuffixDecoding(recalled([1, 2, 3, 4, 5, 6]))

    copied = drafter.propose(DraftContext([60, 1, 2, 3, 4], Sampler(), 8))
    assert copied.sources[1:] == [PAST_ANSWERS, PAST_ANSWERS]
    own_too = drafter.propose(DraftContext([60, 1, 2, 3, 4, 5, 61, 1, 2, 3, 4], Sampler(), 8))
    assert own_too.tokens[1] == 5
    assert own_too.sources[1] == "suffix"


def test_short_matches_in_other_conversations_are_ignored():
    assert len(SuffixDecoding(recalled([1, 2, 3, 4, 5, 6])).propose(DraftContext([60, 2, 3, 4], Sampler(), 8))) == 1


def test_no_draft_crosses_the_end_of_a_text():
    tree = SuffixDecoding(recalled([1, 2, 3, 4, 5], [6, 7, 8])).propose(DraftContext([60, 1, 2, 3, 4], Sampler(), 8))

    assert tree.tokens[1:] == [5]
    assert TEXT_END not in tree.tokens


def test_a_longer_context_of_another_conversation_outweighs_a_shorter_one_of_this():
    recall = recalled([1, 2, 3, 4, 70])

    assert SuffixDecoding(recall).propose(DraftContext([4, 80, 1, 2, 3, 4], Sampler(), 1)).tokens[1:] == [70]
    assert SuffixDecoding(recall).propose(DraftContext([1, 2, 3, 4, 80, 1, 2, 3, 4], Sampler(), 1)).tokens[1:] == [80]


def test_unreadable_past_texts_cost_only_draft_tokens():
    def broken() -> list[list[int]]:
        raise OSError("no disk")

    recall = PastTextIndex(broken, quiet_seconds=0.0)
    recall.refresh()
    recall.wait()

    assert len(SuffixDecoding(recall).propose(DraftContext([1, 2, 3], Sampler(), 8))) == 1


def test_past_texts_are_not_read_while_conversations_start():
    recall = PastTextIndex(lambda: [[1, 2, 3, 4, 5]], quiet_seconds=3600.0)
    recall.refresh()

    assert len(SuffixDecoding(recall).propose(DraftContext([60, 1, 2, 3, 4], Sampler(), 8))) == 1


def test_past_texts_are_read_again_on_refresh():
    said = [[1, 2, 3]]
    recall = PastTextIndex(lambda: said, quiet_seconds=0.0)
    recall.refresh()
    recall.wait()
    said.append([1, 2, 9])
    assert [place.matched_tokens for place in recall.suffix_array.find([1, 2], 4)] == [2]

    recall.refresh()
    recall.wait()
    assert [recall.suffix_array.tokens[place.next_index] for place in recall.suffix_array.find([1, 2], 4)] == [9, 3]


@pytest.mark.full
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5), st.lists(st.integers(0, 3), min_size=1, max_size=9)
)
def test_a_suffix_array_finds_the_longest_contexts(texts, text):
    contexts = SuffixArray(texts, max_depth=4)
    flat = contexts.tokens.tolist()
    every = [agreement(flat[:end], text, 4) for end in range(1, len(flat)) if flat[end] != TEXT_END]

    assert sorted(filter(None, every), reverse=True)[:5] == [place.matched_tokens for place in contexts.find(text, 5)]


def agreement(one: list[int], other: list[int], most: int) -> int:
    """The length of the common suffix, with a limit."""
    return max(n for n in range(min(len(one), len(other), most) + 1) if one[len(one) - n :] == other[len(other) - n :])
