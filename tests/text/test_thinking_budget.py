"""A thought that reaches its limit is closed by forced tokens, at a place that its tokens alone decide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.text.thinking_budget import Phase, ThinkingBudget, ThinkingMarkers
from tests.each_row import each_row

TOKENS = [b"a", b" ", b"<", b"<think>", b"think>", b"</think>", b"</", b"nk>x", b"thi", b"\n"]
OPENING, CLOSING = TOKENS.index(b"<think>"), TOKENS.index(b"</think>")
FORCED = (9, CLOSING, 9, 9)
PATHS = st.lists(st.integers(0, len(TOKENS) - 1), max_size=12)


def budget(limit: int = 3, *, is_open: bool = True) -> ThinkingBudget:
    markers = ThinkingMarkers(b"<think>", b"</think>", FORCED)
    return ThinkingBudget(markers, limit, TOKENS.__getitem__, len(TOKENS), is_open=is_open)


def followed(grammar: ThinkingBudget, tokens: list[int]) -> ThinkingBudget:
    """The grammar after these tokens, as far as it allows them."""
    for token in tokens:
        grammar.advance(token)
    return grammar


def test_the_tokens_that_close_a_thought_are_forced_at_its_limit():
    grammar = followed(budget(limit=3), [0, 0, 0])

    assert grammar.forced_tokens() == list(FORCED)
    assert grammar.allowed_mask().nonzero().flatten().tolist() == [FORCED[0]]
    assert not grammar.advance(0)
    assert followed(grammar, list(FORCED)).phase is Phase.ANSWER
    assert grammar.allowed_mask().all()


@each_row("path", [[CLOSING], [0, 6, 8, 7]])
def test_a_thought_that_ends_by_itself_is_left_alone(path):
    assert followed(budget(limit=4), [*path, 0, 0, 0, 0, 0]).phase is Phase.ANSWER


@each_row(
    "path, phase",
    [
        ([OPENING], Phase.THINKING), ([1, 9, OPENING], Phase.THINKING), ([2, 4], Phase.THINKING), ([], Phase.START),
        ([1, 2], Phase.START), ([2, 0], Phase.ANSWER), ([0, OPENING], Phase.ANSWER),
    ],
)  # fmt: skip
def test_only_a_marker_at_the_beginning_opens_a_thought(path, phase):
    assert followed(budget(is_open=False), path).phase is phase


@given(path=PATHS, limit=st.integers(1, 5), is_open=st.booleans(), depth=st.integers(0, 4), behind=PATHS)
def test_where_it_is_free_no_path_of_that_depth_meets_a_mask(path, limit, is_open, depth, behind):
    grammar = followed(budget(limit, is_open=is_open), path)
    if not grammar.is_free([0] * depth):
        return

    for token in [*behind, *[0] * depth][:depth]:
        assert grammar.allowed_mask().all()
        assert grammar.advance(token)
    assert grammar.allowed_mask().all()


@given(path=PATHS, limit=st.integers(1, 5), is_open=st.booleans(), further=PATHS)
def test_a_rollback_leads_back_to_the_same_state(path, limit, is_open, further):
    grammar = followed(budget(limit, is_open=is_open), path)
    before = grammar.phase, grammar.forced_tokens()

    grammar.rollback(sum(grammar.advance(token) for token in further))

    assert (grammar.phase, grammar.forced_tokens()) == before
