"""Any subset of hunks can be accepted: all give the new text, none the old one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.edit.hunks import Change, apply_changes, apply_hunks, diff_hunks, diff_lines, split_lines

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "\x0c d\n"]), max_size=25).flatmap(
    lambda lines: st.sampled_from(["".join(lines), "".join(lines) + "end"])
)


@settings(max_examples=80)
@given(TEXTS, TEXTS)
def test_all_hunks_make_the_new_text_and_none_the_old_one(old, new):
    hunks = diff_hunks(old, new)

    assert new == apply_hunks(old, hunks)
    assert old == apply_hunks(old, [])


@settings(max_examples=40)
@given(TEXTS, TEXTS, st.randoms(use_true_random=False))
def test_split_hunks_are_the_same_hunks(old, new, dice):
    parts = [part for hunk in diff_hunks(old, new) for part in (hunk.split() if dice.random() < 0.7 else [hunk])]

    assert new == apply_hunks(old, parts)


def test_close_changes_are_one_hunk_and_distant_ones_are_not():
    old = "".join(f"{number}\n" for number in range(30))

    close = diff_hunks(old, old.replace("5\n", "five\n", 1).replace("11\n", "eleven\n"))
    distant = diff_hunks(old, old.replace("\n5\n", "\nfive\n").replace("13\n", "thirteen\n"))

    assert ([2], [1, 1]) == ([len(each.changes) for each in close], [len(each.changes) for each in distant])


def test_a_rewritten_hunk_takes_the_whole_place():
    old = ["a\n", "b\n", "c\n"]
    (hunk,) = diff_hunks("a\nb\nc\n", "A\nb\nC\n")

    assert ["A\n", "b\n", "C\n"] == hunk.new_lines(old)
    assert ["x\n"] == apply_changes(old, hunk.with_new_lines(old, ["x\n"]).changes)


def test_what_is_equal_at_both_ends_is_no_change():
    assert [Change(1, ("b\n",), ("x\n", "y\n"))] == diff_lines(split_lines("a\nb\nc\n"), split_lines("a\nx\ny\nc\n"))
