from __future__ import annotations

import pytest
from lsprotocol import types

from specchat_editors.lsp.cursor_context import cursor_context, overlapping_chars, trim_completion
from specchat_editors.lsp.text_documents import Document


def place(text: str):
    """The place that a `|` marks, in Python, or in JavaScript where a function is declared with that word."""
    offset = text.index("|")
    document = Document(f"file:///a.{'js' if text.startswith('function') else 'py'}", text.replace("|", "", 1), 1)
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


@pytest.mark.parametrize(
    ("text", "filled", "left"),
    [
        ("x = |\n", "compute(first, second_val", "compute(first"),
        ("x = |\n", "compute(first, order.pri", "compute(first"),
        ("x = |\n", "compute(first, order.price", "compute(first"),
        ("x = |\n", "first + ", "first"),
        ("x = sel|\n", "f.wid", ""),
        ("x = coun|\n", "t", ""),
        ("x = |\n", 'show("one", "two thr', 'show("one"'),
        ("x = |\n", "f(a)", "f(a)"),
        ("x = |\n", "a if b el", "a"),
        ("def f(|)\n", "first: int, sec", "first: int"),
        ("def f():\n    |\n", "\n        a = 1\n    retu", "\n        a = 1"),
    ],
)
def test_a_line_that_the_limit_cuts_ends_with_a_whole_group_of_tokens(text, filled, left):
    for reason in ("length", "timeout"):
        assert trim_completion(filled, reason, place(text)) == left


@pytest.mark.parametrize(
    ("text", "filled", "left"),
    [
        ("def f(a):\n    |\n", "total = (a +\n    b = 2\n    c = = 3", ""),
        ("function|\n", " f(a) {\n  return a\n}\n = =", " f(a) {\n  return a\n}"),
        ("def f(a):\n    |\n", "b = 2\n    c = = 3\n    d = 4", "b = 2"),
        ("def f(a):\n    |\n", "if a:\n        b = [1,\n            2,", "if a:\n        b = [1,\n            2,"),
        ("def f(a):\n    |\n", '"""Return it.\n\n    a: a number', '"""Return it.\n\n    a: a number'),
        ("def f(a):\n    |\n", "The function returns a.\n    It adds.", ""),
        ("x = = 1\nb = |\n", "c d e\nf g", "c d e\nf g"),
    ],
)
def test_whole_lines_that_do_not_parse_are_left_out(text, filled, left):
    assert trim_completion(filled, "lines", place(text)) == left


def test_a_text_that_ends_by_itself_is_not_parsed():
    assert trim_completion("c d e", "stop", place("b = |\n")) == "c d e"


def test_without_a_grammar_a_cut_line_loses_its_last_word_only():
    document = Document("file:///notes.txt", "one ", 1)

    assert trim_completion("two thr", "length", cursor_context(document, types.Position(0, 4))) == "two"
