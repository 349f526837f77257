"""A file that is being rewritten, as its own draft."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.drafters.realign import Realign
from specchat.engine.accept import accept
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

PROMPT = [900, 901, 902]
FILE = list(range(100, 180))
BUDGET = 12


def after(answer: list[int], original: list[int] = FILE, budget: int = BUDGET) -> DraftTree:
    """The draft after `answer`."""
    drafter = Realign(original, len(PROMPT))
    for length in range(len(answer) + 1):  # token by token, as after rejected drafts
        tree = drafter.propose(DraftContext(PROMPT + answer[:length], Sampler(), budget))
    return tree


def passes(answer: list[int], original: list[int] = FILE) -> list[int]:
    """How many tokens each pass yields when the target writes `answer`."""
    drafter, wanted, known, yields = Realign(original, len(PROMPT)), PROMPT + answer, PROMPT, list[int]()
    while len(known) < len(wanted):
        tree = drafter.propose(DraftContext(known, Sampler(), min(BUDGET, len(wanted) - len(known) - 1)))
        sampled = [wanted[min(len(known) + depth, len(wanted) - 1)] for depth in tree.depths]
        path = accept(tree, sampled)
        yields.append(len(path))
        known = wanted[: len(known) + len(path)]
    return yields


def believed(answer: list[int], rest: list[int], original: list[int] = FILE) -> int:
    """The number of accepted draft tokens after `answer` if it continues with `rest`."""
    tree = after(answer, original)
    node, right = 0, 0
    while right < len(rest) and (node := tree.child(node, rest[right])):
        right += 1
    return right


def test_an_unchanged_file_is_copied_in_full_passes():
    assert set(passes(FILE)[:-1]) == {BUDGET + 1}


def test_after_an_inserted_token_the_copy_goes_on_at_once():
    assert believed([*FILE[:20], 7], FILE[20:]) >= 3


def test_after_a_replaced_token_the_copy_goes_on_at_once():
    assert believed([*FILE[:20], 7], FILE[21:]) >= 3


def test_after_a_deletion_the_copy_goes_on_at_once():
    assert believed([*FILE[:20], FILE[30]], FILE[31:]) >= 5


def test_after_three_replaced_tokens_the_copy_goes_on_at_once():
    assert believed([*FILE[:20], 7, 8, 9], FILE[23:]) >= 3


def test_an_inserted_line_may_end_like_the_line_above():
    lines = [100, 101, 5, 102, 103, 5, 104, 105, 5, 106]
    assert believed([100, 101, 5, 70, 71], [5, *lines[3:]], lines) >= 2


def test_a_realigned_copy_gets_the_whole_budget():
    assert after([*FILE[:20], 7, 8, *FILE[25:28]]).path_tokens(BUDGET) == FILE[28 : 28 + BUDGET]


def test_three_edits_cost_a_few_passes_each():
    answer = [*FILE[:15], 1, 2, *FILE[15:30], *FILE[36:50], 3, *FILE[51:]]

    assert len(passes(answer)) <= len(answer) // (BUDGET + 1) + 1 + 3 * 2


def test_a_preface_is_no_part_of_the_file():
    assert believed([7, 8, 9], FILE) >= 1
    assert believed([7, 8, 9, *FILE[:2]], FILE[2:]) == BUDGET


def test_a_renaming_is_applied_to_the_copy_after_its_first_use():
    original = [token for line in range(10) for token in (200 + line, 1, 2, 220 + line)]  # 1 2 is the old name
    renamed = [token for line in range(10) for token in (200 + line, 7, 8, 9, 220 + line)]

    assert believed(renamed[:6], renamed[6:], original) == BUDGET


def test_a_renaming_to_a_longer_name_with_the_same_prefix_is_applied_too():
    original = [token for line in range(10) for token in (200 + line, 1, 220 + line)]
    renamed = [token for line in range(10) for token in (200 + line, 1, 2, 220 + line)]

    assert believed(renamed[:6], renamed[6:], original) == BUDGET
    assert believed(renamed[:7], renamed[7:], original) == BUDGET


def test_a_replacement_that_is_not_repeated_is_dropped():
    original = [token for line in range(10) for token in (200 + line, 1, 220 + line)]
    answer = [200, 7, 220, *original[3:]]

    assert believed(answer[:4], [7], original) == 1
    assert believed(answer[:6], original[6:], original) == BUDGET


def test_a_repeated_replacement_is_finished_before_the_copy_continues():
    original = [token for line in range(10) for token in (200 + line, 1, 220 + line)]
    answer = [200, 7, 8, 9, 220, 201, 1, 221, 202, 1, 222, 203, 7]

    assert believed(answer, [8, 9, 223], original) == 3


def test_a_truncated_answer_is_aligned_again():
    drafter = Realign(FILE, len(PROMPT))
    drafter.propose(DraftContext(PROMPT + FILE[:40], Sampler(), BUDGET))

    drafter.forget(len(PROMPT) + 10)

    assert drafter.propose(DraftContext(PROMPT + FILE[:12], Sampler(), 3)).tokens[1:] == FILE[12:15]


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=20), st.integers(0, 8))
def test_any_answer_to_any_file_keeps_the_budget(original, answer, budget):
    assert len(after(answer, original, budget)) <= budget + 1


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 30), st.lists(st.integers(0, 3), max_size=12))
def test_a_truncated_answer_is_drafted_like_a_new_one(answer, cut, more):
    original, drafter = [0, 1, 2, 3] * 4, Realign([0, 1, 2, 3] * 4, len(PROMPT))
    drafter.propose(DraftContext(PROMPT + answer, Sampler(), 8))
    revised = answer[:cut] + more
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(answer, revised, strict=False)))

    drafter.forget(len(PROMPT) + shared)

    fresh = Realign(original, len(PROMPT)).propose(DraftContext(PROMPT + revised, Sampler(), 8))
    assert drafter.propose(DraftContext(PROMPT + revised, Sampler(), 8)).tokens == fresh.tokens


@pytest.mark.parametrize("text", [[5], [5, 6], PROMPT])
def test_a_text_without_an_answer_is_the_file_from_its_beginning(text):
    assert Realign(FILE, len(PROMPT)).propose(DraftContext(text, Sampler(), 4)).tokens[1:] == FILE[:4]
