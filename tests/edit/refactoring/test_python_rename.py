"""What a renaming changes in a Python text, what it leaves, and when it is refused."""

from __future__ import annotations

import pytest

from specchat.edit.refactoring.operations import NameKind, Rename
from specchat.edit.refactoring.python_rename import rename_in_python
from specchat.edit.refactoring.splices import RefusedError


def renamed(text: str, old: str, new: str, kind: NameKind = NameKind.ANY, scope: str = "") -> str:
    return rename_in_python(text, Rename(old, new, kind, scope)).apply(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def old():\n    return old\n\nold()\n", "def new():\n    return new\n\nnew()\n"),
        ("class old:\n    pass\n\nx: 'list[old]' = [old()]\n", "class new:\n    pass\n\nx: 'list[new]' = [new()]\n"),
        ("old = 1\n\ndef f():\n    global old\n    old += 1\n", "new = 1\n\ndef f():\n    global new\n    new += 1\n"),
        ("def f():\n    old = 1\n\n    def g():\n        nonlocal old\n        old = 2\n",
         "def f():\n    new = 1\n\n    def g():\n        nonlocal new\n        new = 2\n"),
        ("import os as old\n\nold.path\n", "import os as new\n\nnew.path\n"),
        ("[old for old in range(3)]\n", "[new for new in range(3)]\n"),
        ("def f(old):\n    return (lambda: old)()\n", "def f(new):\n    return (lambda: new)()\n"),
        ("match x:\n    case {'k': old} if old:\n        1\n", "match x:\n    case {'k': new} if new:\n        1\n"),
        ("with open(x) as old:\n    old.read()\n", "with open(x) as new:\n    new.read()\n"),
        ("__all__ = ['old']\n\ndef old(): ...\n", "__all__ = ['new']\n\ndef new(): ...\n"),
        ("old = TypeVar('old')\n", "new = TypeVar('new')\n"),
        ("def f[old](x: old) -> 'old': ...\n", "def f[new](x: new) -> 'new': ...\n"),
        ("if (old := f()) and old:\n    pass\n", "if (new := f()) and new:\n    pass\n"),
        ("def old(): ...\n\nprint(f'{old()!r:>{old}}')\n", "def new(): ...\n\nprint(f'{new()!r:>{new}}')\n"),
    ],
)  # fmt: skip
def test_a_name_is_renamed_wherever_it_is_the_same_name(before, after):
    assert after == renamed(before, "old", "new")


@pytest.mark.parametrize(
    "other",
    [
        "def g(old):\n    return old\n",  # a parameter of another function
        "x.old = other.old\n",
        "'old'  # old\n",
        "f(old=1)\n",
        "[old for old in x]\n",
        "class C:\n    old = 1\n",
        "import m.old\n",
        "from old import x\n",
    ],
)
def test_what_only_looks_like_the_name_stays(other):
    text = f"def old():\n    pass\n\n\n{other}"

    assert text.replace("def old", "def new") == renamed(text, "old", "new", NameKind.FUNCTION)


def test_a_class_body_does_not_see_its_names_from_methods():
    text = "old = 1\n\n\nclass C:\n    old = 2\n\n    def f(self):\n        return old\n"

    assert renamed(text, "old", "new", NameKind.VARIABLE).endswith(
        "    old = 2\n\n    def f(self):\n        return new\n"
    )


def test_keyword_arguments_and_the_documentation_of_a_parameter_follow_it():
    text = '''\
def count(limit, other=1):
    """Count up to a limit.

    Args:
        limit (int): where to end; `limit` itself is not counted
        other: the limit of the others
    """
    return limit  # below the limit


count(limit=3, other=2)
other(limit=3)
'''
    new = (
        text.replace("count(limit", "count(maximum").replace("        limit (int)", "        maximum (int)")
        .replace("`limit`", "`maximum`").replace("return limit", "return maximum")
    )  # fmt: skip

    assert new == renamed(text, "limit", "maximum")


@pytest.mark.parametrize(
    "docstring",
    [":param {0}: the value\n    :type {0}: int", "@param {0}: the value",
     "Parameters\n    ----------\n    {0} : int\n        The value.",
     "Args:\n        {0}: the value\n\n    Returns:\n        x"],
)  # fmt: skip
def test_each_convention_of_docstrings_is_known(docstring):
    text = 'def f({0}):\n    """Do it.\n\n    ' + docstring + '\n    """\n'

    assert text.format("new") == renamed(text.format("old"), "old", "new")


def test_a_method_is_renamed_in_the_classes_that_override_it_and_on_their_objects():
    text = """\
class Base:
    def old(self): ...

class Sub(Base):
    def old(self):
        super().old()

class Other:
    def old(self): ...

def f(sub: Sub, other: "Other"):
    sub.old()
    other.old()
    Base().old()
    sub.text.join("old").strip()
"""
    changed = renamed(text, "old", "new", NameKind.METHOD, "Base")

    assert 2 == changed.count("other.old") + changed.count("Other:\n    def old")
    assert 5 == changed.count("new(")


def test_the_fields_of_a_dataclass_are_renamed_in_its_constructor_and_in_patterns():
    text = """\
@dataclass
class P:
    old: int

    def moved(self) -> "P":
        return replace(self, old=self.old + 1)

match P(old=1):
    case P(old=2):
        pass
"""

    assert text.replace("old", "new") == renamed(text, "old", "new")


def test_a_parameter_of_a_constructor_follows_calls_of_subclasses_without_one():
    text = """\
class A:
    def __init__(self, old):
        self.x = old

class B(A, Generic[T]): ...

class C(A):
    def __init__(self, old):
        super().__init__(old=old)

A(old=1), B[int](old=1), C(old=1)
"""
    changed = renamed(text, "old", "new", NameKind.PARAMETER, "A.__init__")

    assert "self, new):\n        self.x = new" in changed
    assert "super().__init__(new=old)" in changed
    assert changed.endswith("A(new=1), B[int](new=1), C(old=1)\n")


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("def old(): ...\n\nnew = 1\nold()\n", NameKind.ANY, "`new` is in use"),
        ("def f(old, new): ...\n", NameKind.ANY, "`new` is in use"),
        ("def f(old):\n    return new\n", NameKind.ANY, "`new` is in use"),
        ("def f(old): ...\n\ndef g(old): ...\n", NameKind.ANY, "may be the parameter of line 1 or"),
        ("x = 1\n", NameKind.ANY, "does not define `old`"),
        ("from m import old\n\nold()\n", NameKind.ANY, "is imported"),
        ("def f():\n    old = 1\n    return '{old}'.format(**locals())\n", NameKind.ANY, "by a string"),
        ("def f(old): ...\n\nf(**options)\n", NameKind.ANY, "by `**`"),
        ("def f(old): ...\n\ng = f\nx.h(old=1)\n", NameKind.ANY, "for another function"),
        ("@app.route('/<old>')\ndef f(old): ...\n", NameKind.ANY, "`@route` may use"),
        ("def test_it(old): ...\n", NameKind.ANY, "may be a fixture"),
        ("@pytest.fixture\ndef old(): ...\n", NameKind.ANY, "is a fixture"),
        ("class C:\n    def old(self): ...\n\nx.old()\n", NameKind.ANY, "may be an attribute of something else"),
        ("class C(Base):\n    def old(self):\n        super().old()\n", NameKind.ANY, "something else"),
        ("class C:\n    def old(self): ...\n    def new(self): ...\n", NameKind.ANY, "an attribute already"),
        ("class C:\n    def old(self): ...\n\ngetattr(x, 'old')\n", NameKind.ANY, "by a string"),
        ("old = 1\n\nclass C:\n    old = old\n", NameKind.VARIABLE, "something else in a place"),
        ("def f(old):  # type: (old) -> None\n    ...\n", NameKind.ANY, "type comment"),
        ("def old(:\n", NameKind.ANY, "does not parse"),
    ],
)
def test_a_renaming_that_is_not_certain_is_refused(text, kind, why):
    with pytest.raises(RefusedError, match=why.replace("*", r"\*")):
        renamed(text, "old", "new", kind)


@pytest.mark.parametrize("new", ["class", "a b", "1x", "old", "__x", "_"])
def test_a_name_that_cannot_be_one_is_refused(new):
    with pytest.raises(RefusedError):
        renamed("old = 1\n", "old", new)


def test_the_parametrized_arguments_of_a_test_are_renamed_in_its_decorator():
    text = "@pytest.mark.parametrize('old, x', [(1, 2)])\ndef test_it(old, x):\n    assert old\n"

    assert text.replace("old", "new") == renamed(text, "old", "new")


def test_the_summary_counts_the_places_and_what_is_left():
    step = rename_in_python("def old(): ...  # old\n\nold()\n", Rename("old", "new"))

    assert "rename function `old` to `new`: 2 places; 1 mention in strings and comments left" == step.summary
