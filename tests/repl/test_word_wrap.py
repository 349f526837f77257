"""A text that streams is broken between words, wherever its chunks end, and is otherwise the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.repl.word_wrap import WordWrap, wrapped
from tests.each_row import each_row

TEXTS = st.text(st.sampled_from("ab \n"), max_size=60)


@each_row(
    "text, lines",
    [
        ("the beam can be seen", ["the beam", "can be", "seen"]),
        ("lighthouses", ["lighthouses"]),
        ("a lighthouses b", ["a", "lighthouses", "b"]),
        ("one\n    two\n\nthree four", ["one", "    two", "", "three", "four"]),
    ],
)
def test_lines_end_between_words_and_keep_their_indent(text, lines):
    assert lines == wrapped(text, 8).split("\n")


@given(st.lists(TEXTS))
def test_chunks_change_nothing(chunks):
    wrap = WordWrap(8)

    assert wrapped("".join(chunks), 8) == "".join(map(wrap.add, chunks)) + wrap.add("", is_last=True)


@given(TEXTS)
def test_words_are_the_same_and_no_line_is_too_long_that_could_be_broken(text):
    shown = wrapped(text, 8)

    assert text.split() == shown.split()
    assert all(len(line.rstrip()) <= 8 or len(line.split()) == 1 for line in shown.split("\n"))


def test_a_word_comes_when_it_is_complete():
    wrap = WordWrap(8)

    assert ["", "the", " beam", "\nis\n"] == [wrap.add("th"), wrap.add("e "), wrap.add("beam "), wrap.add("is\n")]
