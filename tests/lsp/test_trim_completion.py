from __future__ import annotations

import pytest
from lsprotocol import types

from specchat.editors.lsp.cursor_context import cursor_context, overlapping_chars, trim_completion
from specchat.editors.lsp.text_documents import Document


def place(text: str):
    """The place that a `|` marks."""
    offset = text.index("|")
    document = Document("file:///a.py", text.replace("|", "", 1), 1)
    return cursor_context(document, document.position(offset))


@pytest.mark.parametrize(
    ("text", "filled", "left"),
    [
        ("x = |\n", "1\n", "1"),
        ("x = |\n", "   \n\n", ""),
        ("x = |\n", "1\n```\nThat is it.", "1"),
        ("x = |\n", "1<|file_sep|>other.py", "1"),
        ("x = |\n", "1<fim_suffix>y", "1"),
        ("x = |\n", "the the the the the the", ""),
        ("x = |\n", "1\ny = the the the the the the", "1"),
        ("x = |\n", "wid(" + "_" * 200, ""),
        ("x = |  # ------\n", '"--------------"', '"--------------"'),
        ("def f():\n    |\n", "return 1\n\ndef g():\n    pass", "return 1"),
        ("a()\n|\nb()\n", "c()\nb()\nd()", "c()"),
        ("a()\n|\n", "a()", ""),
        ("print(|value)\n", "old_value)", "old_"),
        ("if x:\n\ty = 1\n\t|\n", "z = 2\n    if z:\n        w = 3", "z = 2\n\tif z:\n\t\tw = 3"),
        ("if x:\n  y = 1\n  |\n", "if z:\n\t\tw = 3", "if z:\n        w = 3"),
        ("x = 1\r\ny = |\r\n", "2\nz = 3", "2\r\nz = 3"),
    ],
)
def test_only_what_is_new_is_shown(text, filled, left):
    assert trim_completion(filled, "stop", place(text)) == left


def test_of_a_truncated_answer_only_complete_lines_count():
    assert trim_completion("one\ntwo\nthr", "timeout", place("|\n")) == "one\ntwo"


def test_closing_brackets_in_the_text_are_replaced_and_others_stay():
    around = place("f(|)\n")

    assert overlapping_chars("a, b)", around) == 1
    assert overlapping_chars("a, b", around) == 0
    assert overlapping_chars("a)", place("f(|, c)\n")) == 0


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 4), ("utf-16", 2), ("utf-32", 1)])
def test_a_column_counts_what_the_editor_counts(encoding, column):
    document = Document("file:///a.py", "one\r\n😀x\ftwo\u2028\rlast", 1, encoding=encoding)

    assert document.offset(types.Position(1, column)) == 6
    assert document.position(6) == types.Position(1, column)
    assert document.offset(types.Position(2, 99)) == len(document.text)
    assert document.offset(types.Position(9, 0)) == len(document.text)
    assert document.line(1) == "😀x\ftwo\u2028"
