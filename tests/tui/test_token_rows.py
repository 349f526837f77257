"""Tokens in rows: words stay whole, rows stay narrow, earlier rows do not move, and a row knows its steps."""

from __future__ import annotations

from textual.content import Content
from textual.style import Style

from specchat.tui.streaming_answer import MAX_LINE_CHARS
from specchat.tui.token_view import STEP, TokenRows, step_of


def laid(width: int, *tokens: str) -> TokenRows:
    rows = TokenRows(width)
    for step, text in enumerate(tokens):
        rows.add([Content.styled(text, Style.from_meta({STEP: step}))])
    return rows


def texts(rows: TokenRows) -> list[str]:
    return [row.plain.rstrip() for row in rows.rows]


def test_rows_end_between_words_also_when_tokens_do_not():
    cases = [
        (("one two", " three"), ["one two", "three"]),
        (("one", " tw", "othree"), ["one", "twothree"]),
        (("ab\ncd",), ["ab", "cd"]),
        (("    x", "\n\n", "y"), ["    x", "", "y"]),
        (("abcdefghijklmnopqrs",), ["abcdefgh", "ijklmnop", "qrs"]),
        (("日本語日本語",), ["日本語日", "本語"]),
    ]

    assert [expected for _, expected in cases] == [texts(laid(8, *tokens)) for tokens, _ in cases]


def test_what_is_added_moves_the_last_line_only_and_another_width_moves_all():
    rows = laid(20, *(f"token{number}\n" for number in range(50)))
    before, finals = texts(rows), rows.final_row_count
    rows.add([Content("more words than fit into one row of this width")])

    assert before[:finals] == texts(rows)[:finals]
    rows.rewrap(4)
    assert max(map(len, texts(rows))) <= 4
    long = laid(20, "word " * MAX_LINE_CHARS)
    assert long.final_row_count > len(long.rows) / 2  # a line without an end is not wrapped again and again


def test_a_row_knows_the_steps_of_its_tokens():
    rows = laid(10, "one ", "日", "two\n", "x")

    assert [[step_of(span) for span in row.spans] for row in rows.rows] == [[0, 1, 2], [3]]
    assert [0, 0, 1, 1] == [rows.first_row_of(step) for step in (0, 2, 3, 9)]
