"""Guesses from the text itself."""

from specchat.drafters.prompt_lookup import PromptLookup
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler


def draft_paths(tokens: list[int], budget: int = 8, branches: int = 2) -> list[list[int]]:
    """Every leaf's path in the tree that lookup proposes."""
    tree = PromptLookup(branches).propose(DraftContext(tokens, Sampler(), budget))
    assert len(tree) <= budget + 1
    inner = set(tree.parents)
    return [tree.path_tokens(node) for node in range(1, len(tree)) if node not in inner]


def test_the_last_continuation_is_drafted():
    assert draft_paths([1, 2, 3, 4, 5, 9, 1, 2, 3]) == [[4, 5, 9, 1, 2, 3]]


def test_a_new_token_has_no_draft():
    assert draft_paths([1, 2, 3, 4, 5]) == []


def test_a_single_token_is_no_match():
    assert draft_paths([1, 2, 3, 1]) == []


def test_the_longest_match_comes_before_the_latest():
    text = [1, 2, 3, 4, 5, 70, 8, 3, 4, 5, 80, 8, 1, 2, 3, 4, 5]

    assert draft_paths(text, budget=2)[0] == [70, 8]


def test_another_continuation_becomes_a_branch():
    text = [1, 2, 70, 9, 1, 2, 80, 9, 1, 2]

    assert [path[0] for path in draft_paths(text)] == [80, 70]
    assert [path[0] for path in draft_paths(text, branches=1)] == [80]


def test_a_longer_match_gives_a_longer_draft():
    short, long = [1, 2, *range(50, 70), 1, 2], [*range(20), *range(50, 90), *range(20)]

    assert len(draft_paths(short, budget=40)[0]) == 4
    assert len(draft_paths(long, budget=40, branches=1)[0]) == 40


def test_the_budget_is_kept():
    assert all(sum(map(len, draft_paths([1, 2] * 20, budget=n))) <= n for n in range(1, 10))


def test_a_truncated_text_is_forgotten():
    lookup, text = PromptLookup(), [1, 2, 3, 4, 5, 1, 2]
    lookup.propose(DraftContext(text, Sampler(), 8))

    lookup.forget(2)
    tree = lookup.propose(DraftContext([1, 2, 9, 9, 1, 2], Sampler(), 3))

    assert tree.tokens[1:] == [9, 9, 1]
