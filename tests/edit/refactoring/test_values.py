"""New values for constants and defaults, and new parameters."""

from __future__ import annotations

import pytest

from specchat.edit.refactoring.operations import AddParameter, NameKind, SetValue
from specchat.edit.refactoring.splices import RefusedError
from specchat.edit.refactoring.values import add_parameter, set_value


@pytest.mark.parametrize(
    ("language", "before", "change", "after"),
    [
        ("python", "X = 1  # one\n", SetValue("X", "2"), "X = 2  # one\n"),
        ("python", "X: str = 'a'\n", SetValue("X", '"b"'), "X: str = 'b'\n"),
        ("python", "X = 60 * 60\n", SetValue("X", "30"), "X = 30\n"),
        ("python", "def f(x=True): ...\n", SetValue("x", "false"), "def f(x=False): ...\n"),
        ("python", "def f(x: int = 1): ...\ndef g(x=1): ...\n", SetValue("x", "2", scope="f"),
         "def f(x: int = 2): ...\ndef g(x=1): ...\n"),
        ("python", "class A:\n    def f(self):\n        self.x = None\n", SetValue("x", "2"),
         "class A:\n    def f(self):\n        self.x = 2\n"),
        ("json", '{"a": {"port": 80}}\n', SetValue("port", "90"), '{"a": {"port": 90}}\n'),
        ("toml", "port = 80 # x\n", SetValue("port", "90"), "port = 90 # x\n"),
        ("yaml", "a:\n  port: 80\n", SetValue("port", "90"), "a:\n  port: 90\n"),
        ("javascript", "const A = 'x', b = 2;\n", SetValue("A", '"y"'), "const A = 'y', b = 2;\n"),
        ("typescript", "function f(x: number = 3) {}\n", SetValue("x", "4"), "function f(x: number = 4) {}\n"),
        ("c", "#define X 5\n", SetValue("X", "6"), "#define X 6\n"),
        ("go", "package a\n\nconst X = 5\n", SetValue("X", "6"), "package a\n\nconst X = 6\n"),
        ("rust", "const X: u32 = 5;\n", SetValue("X", "6"), "const X: u32 = 6;\n"),
        ("java", "class A { boolean x = true; }\n", SetValue("x", "false"), "class A { boolean x = false; }\n"),
        ("bash", "X=5\n", SetValue("X", "6"), "X=6\n"),
    ],
)  # fmt: skip
def test_a_value_changes_and_nothing_else(language, before, change, after):
    assert after == set_value(before, language, change).apply(before)


@pytest.mark.parametrize(
    ("language", "text", "change"),
    [
        ("python", "X = 1\nX = 2\n", SetValue("X", "3")),
        ("python", "X = 1\nX += 2\n", SetValue("X", "3")),
        ("python", "X = f()\n", SetValue("X", "3")),
        ("python", "X = Y = 1\n", SetValue("X", "3")),
        ("python", "X = 1\n", SetValue("X", "'a'")),
        ("python", "X = 1\n", SetValue("X", "3", old_value="2")),
        ("python", "def f(x=1): ...\n", SetValue("x", "3", NameKind.CONSTANT)),
        ("python", "def f(x): ...\n", SetValue("x", "3")),
        ("python", "X = 1\n", SetValue("Y", "3")),
        ("python", "X = 1\n", SetValue("X", "import os")),
        ("javascript", "let x = 1; x = 2;\n", SetValue("x", "3")),
        ("javascript", "let x = 1; x++;\n", SetValue("x", "3")),
        ("json", '{"a": 1, "b": {"a": 2}}\n', SetValue("a", "3")),
    ],
)
def test_a_value_that_is_not_certain_is_refused(language, text, change):
    with pytest.raises(RefusedError):
        set_value(text, language, change)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(): ...\n", "def f(new=1): ...\n"),
        ("def f(a): ...\n", "def f(a, new=1): ...\n"),
        ("def f(a, *b, **c): ...\n", "def f(a, *b, new=1, **c): ...\n"),
        ("def f(a, /): ...\n", "def f(a, /, new=1): ...\n"),
        ("def f(\n    a,\n): ...\n", "def f(\n    a,\n    new=1,\n): ...\n"),
        ("def f(a,\n      b): ...\n", "def f(a,\n      b,\n      new=1): ...\n"),
    ],
)
def test_a_parameter_is_added_at_the_end(before, after):
    assert after == add_parameter(before, "python", AddParameter("f", "new", "1")).apply(before)


@pytest.mark.parametrize(
    "text",
    [
        "def f(new): ...\n",
        "def f():\n    return new\n",
        "def g(): ...\n",
        "if x:\n    def f(): ...\nelse:\n    def f(): ...\n",
    ],
)
def test_a_parameter_that_is_not_certain_is_refused(text):
    with pytest.raises(RefusedError):
        add_parameter(text, "python", AddParameter("f", "new", "1"))
