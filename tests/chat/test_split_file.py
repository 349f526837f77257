"""Pieces of a file that make sense alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.context.passages import split_file

TWO = "import os\n\n\ndef one():\n    a\n    b\n\n\ndef two():\n    c\n    d\n"


def test_a_definition_stays_in_one_piece():
    assert [(1, 8), (9, 11)] == [(chunk.first_line, chunk.last_line) for chunk in split_file("a.py", TWO, max_lines=8)]


def test_what_fits_is_one_piece():
    assert [TWO] == [chunk.text for chunk in split_file("a.py", TWO, max_lines=60)]


def test_a_long_piece_is_split_after_a_blank_line():
    text = "a\nb\nc\n\nd\ne\n"

    assert [(1, 4), (5, 6)] == [(chunk.first_line, chunk.last_line) for chunk in split_file("a", text, max_lines=5)]


LINES = st.sampled_from(["", "def f():", "    x = 1", "class A:", "    def m(self):", "        pass", "\x0c", "# é"])


@settings(max_examples=60)
@given(st.lists(LINES, max_size=30), st.booleans(), st.integers(1, 12), st.sampled_from(["a.py", "a"]))
def test_chunks_are_short_in_order_and_lose_only_blank_lines(lines, ends, most, name):
    text = "\n".join(lines) + "\n" * ends

    found = split_file(name, text, most)

    all_lines = text.split("\n")
    assert all(chunk.last_line - chunk.first_line < most for chunk in found)
    assert all(before.last_line < after.first_line for before, after in pairwise(found))
    for chunk in found:
        assert all_lines[chunk.first_line - 1 : chunk.last_line] == chunk.text.removesuffix("\n").split("\n")
    covered = {line for chunk in found for line in range(chunk.first_line, chunk.last_line + 1)}
    assert not any(all_lines[line - 1].strip() for line in range(1, len(all_lines) + 1) if line not in covered)
