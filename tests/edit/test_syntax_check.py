"""A new text must parse where the old one did."""

from __future__ import annotations

import pytest

from specchat.edit.source_text import make_source
from specchat.edit.syntax_check import check_syntax, check_uses
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


STORE = "class S:\n    def clear(self): self.items = []\n\n    def size(self): return len(self.items)\n"
CANNOT_WORK = [
    ('open(path, "r")', 'open(path, "r", mode="r")', "multiple values for argument 'mode'"),
    ("open(path)", "open(path, 'utf-8')", "'utf-8' is no mode of a file"),
    ("open(path)", "open(path, mode='read')", "'read' is no mode of a file"),
    ("print(1)", "print(1, separator=2)", "unexpected keyword argument 'separator'"),
    ("def f(a, b=1): ...\nf(2)\n", "def f(a, b=1): ...\nf(2, a=3)\n", "multiple values for argument 'a'"),
    ("def f(a): ...\nf(2)\n", "def f(a, b): ...\nf(2)\n", "missing a required argument: 'b'"),
    (STORE, STORE.replace("self.items = ", "self.values = "), "nothing defines `self.items` any more"),
    ("def f(): return 1\n", "return 1\n", "'return' outside function"),
    (
        "async def f(): await g()\ndef g(): ...\n",
        "def f(): await g()\ndef g(): ...\n",
        "'await' outside async function",
    ),
]
CAN_WORK = [
    ("open(path)", "open(path, mode='r', **options)"),
    ("f(1)\n", "@cached\ndef f(a, b): ...\nf(1)\n"),
    ("print(1)", "from tools import print\nprint(1, color=2)"),
    ("len(1, 2)\n", "len(1, 2)\nprint(1)\n"),
    ("def f(a): ...\n", "def f(a, *rest, key, **more): ...\nf(1, 2, key=3, other=4)\n"),
    ("def f(a, a): ...\nf(1)\n", "def f(a, a): ...\nf(2)\n"),  # which Python does not run
]


def test_what_cannot_work_in_python_is_seen_without_running_it():
    wrong = list[str]()
    for old, new, expected in [*CANNOT_WORK, *((*each, "") for each in CAN_WORK)]:
        source, said = make_source(f"path = options = tools = cached = 1\n{old}".encode(), "a.py"), ""
        try:
            check_syntax(source, text := f"path = options = tools = cached = 1\n{new}")
            check_uses(source, text)
        except BrokenEditError as error:
            said = str(error)
        if bool(said) != bool(expected) or expected not in said:
            wrong.append(f"{new!r}: {said!r} instead of {expected!r}")
    assert not wrong, "\n".join(wrong)


def test_a_lost_name_or_a_strayed_await_of_javascript_ends_the_edit():
    old = "function load() {}\nasync function run() { await load(); }\n"
    source = make_source(old.encode(), "a.js")

    with pytest.raises(BrokenEditError, match="line 2 of the new text cannot work: nothing defines `load`"):
        check_uses(source, old.replace("function load", "function read"))
    with pytest.raises(BrokenEditError, match="`await` stands in a function that is not async"):
        check_uses(source, old.replace("async ", ""))
    check_uses(source, old.replace("function load", "function read"), ignored="load")
