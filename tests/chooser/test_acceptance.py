"""What a tree promises, by what became of earlier ones."""

from __future__ import annotations

from specchat.chooser.acceptance import Record, Watched, best_part, promised
from specchat.engine.tree import DraftTree


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree(0)
    tree.add_chain(list(tokens), source="a")
    return tree


def test_rows_that_cost_more_than_they_promise_are_left_out():
    record = Record(0.5)
    steep = [0.0, 1.0, 1.3, 1.6, 1.9, 2.2]

    offer, part = best_part("a", record, chain(1, 2, 3, 4), steep, pace=1.0)

    assert (offer.guesses, len(part)) == (1, 2)


def test_the_likeliest_branches_of_a_tree_are_kept():
    record, tree = Record(0.9), chain(1, 2, 3)
    tree.add(9, 0, "a")

    _offer, part = best_part("a", record, tree, [0.0, 1.0, 1.2, 1.4, 1.6, 1.8], pace=1.0)

    assert part.tokens == [0, 1, 2, 3]


def test_a_long_match_is_counted_apart_from_a_short_one():
    assert [promised(chain(*range(1, length + 1))) for length in (2, 4, 6, 10, 16)] == [0, 0, 1, 2, 3]


def test_a_guess_that_was_never_verified_is_judged_by_the_text_that_came():
    record = Record(0.5)
    watched = Watched(record, chain(5, 6, 7), promise=0)

    goes_on = [watched.hear(token) for token in (5, 9)]

    assert goes_on == [True, False]
    assert [round(tried) for tried in record.tried[0][:3]] == [1, 1, 0]
    assert [round(held) for held in record.held[0][:3]] == [1, 0, 0]


def test_what_is_foreseen_changes_with_what_came():
    record = Record(0.5)
    record.look(chain(1, 2, 3), asked=8)
    before = record.foreseen(8).chances

    record.note(0, 0, has_held=False)

    assert len(before) == 4
    assert record.foreseen(8).chances[1] < before[1]


def test_where_all_was_made_that_was_asked_for_more_is_foreseen():
    record = Record(0.5)

    record.look(chain(1, 2), asked=2)
    longer = record.foreseen(8)
    record.look(chain(1, 2), asked=8)

    assert longer.sizes[-1][0] > 2
    assert record.foreseen(8).sizes[-1] == (2, 2)
