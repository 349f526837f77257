"""A new text must parse where the old one did."""

from __future__ import annotations

import pytest

from specchat.edit.source_text import make_source
from specchat.edit.syntax_check import check_syntax
from specchat.errors import BrokenEditError


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a.py", "x = 1", "x = "),
        ("a.json", "[]", "[1"),
        ("a.toml", "", "="),
        ("a.js", "f()", "f("),
        ("a.rs", "", "fn ("),
    ],
)
def test_a_text_that_no_longer_parses_is_refused(name, old, new):
    with pytest.raises(BrokenEditError, match="does not parse"):
        check_syntax(make_source(old.encode(), name), new)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("a.py", "def x(", "def ("), ("a.js", "f(\ng(", "f(\nh("), ("a.txt", "x", "(((")],
)
def test_a_text_that_never_parsed_may_stay_so(name, old, new):
    check_syntax(make_source(old.encode(), name), new)


def test_a_text_that_warns_is_no_fault():
    check_syntax(make_source(b"x = 1", "a.py"), "x = '\\d'")


def test_a_new_syntax_error_is_reported_with_its_line():
    with pytest.raises(BrokenEditError, match="line 3"):
        check_syntax(make_source(b"f(;\ng()\nh()\n", "a.js"), "f(;\ng()\nh(;\n")
