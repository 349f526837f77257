"""Tokens in rows: words stay whole, rows stay narrow, and earlier rows do not move."""

from __future__ import annotations

from specchat.tui.token_view import NO_TOKEN, TokenRows
from tests.each_row import each_row


def laid(width: int, *tokens: str) -> TokenRows:
    rows = TokenRows(width)
    for number, text in enumerate(tokens):
        rows.add(text, number)
    return rows


def texts(rows: TokenRows) -> list[str]:
    return ["".join(piece.text for piece in row) for row in rows.rows]


@each_row(
    "tokens, expected",
    [
        (("one two", " three"), ["one two ", "three"]),
        (("one", " tw", "othree"), ["one ", "twothree"]),
        (("ab\ncd",), ["ab", "cd"]),
        (("    x", "\n\n", "y"), ["    x", "", "y"]),
        (("abcdefghijklmnopqrs",), ["abcdefgh", "ijklmnop", "qrs"]),
        (("ab cdefghijklmnopq",), ["ab ", "cdefghij", "klmnopq"]),
        (("日本語日本語",), ["日本語日", "本語"]),
    ],
)
def test_rows_end_between_words(tokens, expected):
    assert texts(laid(8, *tokens)) == expected


def test_a_word_of_several_tokens_goes_to_the_next_row_as_one():
    rows = laid(8, "one two ", "thr", "ee")

    assert texts(rows) == ["one two ", "three"]
    assert [piece.token_index for piece in rows.rows[1]] == [1, 2]


def test_no_row_is_wider_than_it_may_be_but_by_spaces():
    rows = laid(10, *("word " * (number % 5 + 1) + "x" * number for number in range(40)))

    assert all(sum(piece.cells for piece in row if not piece.is_space) <= 10 for row in rows.rows)


def test_what_is_added_moves_the_last_row_only():
    rows = laid(20, *(f"token{number} " for number in range(50)))
    before = texts(rows)
    for number in range(50, 60):
        rows.add(f"token{number} ", number)

    assert texts(rows)[: len(before) - 1] == before[:-1]


def test_a_place_knows_its_token():
    rows = laid(10, "one ", "日", "two\n", "x")

    assert [rows.token_at(0, column) for column in (0, 3, 4, 5, 6)] == [0, 0, 1, 1, 2]
    assert [rows.token_at(*place) for place in ((1, 0), (7, 0), (0, 99))] == [3, NO_TOKEN, NO_TOKEN]
    assert [rows.row_of(token) for token in (0, 2, 3)] == [0, 0, 1]
