"""Scopes and bindings of Python, compared with those that Python itself finds."""

from __future__ import annotations

import symtable

import pytest

from specchat.edit.refactoring.python_names import ScopeKind, analyse_names

TEXTS = [
    "import a.b, c as d\nfrom e import f as g, h\n",
    "def f(a, /, b=1, *args: int, k, **kw):\n    global x\n    x = y = a\n    return lambda q: q + b\n",
    "class C(B, metaclass=M):\n    x = 1\n    y = [x for z in range(3)]\n    def f(self): return x\n",
    "def f():\n    a = 1\n    def g():\n        nonlocal a\n        a = 2\n    for b, *c in a: pass\n    del b\n",
    "with a as (b, c), d as e.f: pass\ntry: pass\nexcept E as g: pass\n",
    "match x:\n    case P(a, k=b) | [a, *b] as c: pass\n    case {'k': a, **rest}: pass\n    case m.n | _: pass\n",
    "def f(x):\n    return [y := z for z in x if (w := z)]\n",
    "def f():\n    x: int\n    x += 1\n    import os.path\n    async def g(): pass\n",
]


def scope_names(names) -> list[tuple[str, list[str]]]:
    labels = {"list_comprehension": "listcomp", "lambda": "lambda"}
    return sorted(
        (labels.get(each.node.type, each.name) or "top", sorted(each.bindings)) for each in names.scopes
    )  # fmt: skip


def table_names(table: symtable.SymbolTable) -> list[tuple[str, list[str]]]:
    is_module = table.get_type() == "module"
    own = [
        each.get_name()
        for each in table.get_symbols()
        if (each.is_assigned() or each.is_imported() if is_module else each.is_local()) and each.get_name()[0] != "."
    ]
    return sorted(
        [(table.get_name(), sorted(own)), *(each for child in table.get_children() for each in table_names(child))]
    )


@pytest.mark.parametrize("text", TEXTS)
def test_each_scope_has_the_names_that_python_gives_it(text):
    names = analyse_names(text)
    assert names is not None
    bound_globally = {each for scope in names.scopes for each, how in scope.redirected.items() if how == "global"}

    found = [
        (name, [each for each in own if name != "top" or each not in bound_globally])
        for name, own in scope_names(names)
    ]

    assert table_names(symtable.symtable(text, "text", "exec")) == found


def test_a_name_resolves_past_the_class_that_holds_it():
    names = analyse_names("x = 1\nclass C:\n    x = 2\n    def f(self): return x\n")
    assert names is not None

    assert names.module is names.occurrences[-1].binding.scope


def test_annotations_in_quotes_hold_names_but_literals_do_not():
    names = analyse_names('class C: ...\ndef f(a: "C", b: "list[C]", c: Literal["C"], d: Annotated["C", "C"]): ...\n')
    assert names is not None

    alias = analyse_names('class C: ...\nA: TypeAlias = "list[C]"\n')
    assert alias is not None

    assert ["C", "list", "C"] == [each.binding.name for each in alias.occurrences if each.binding.name in ("C", "list")]
    assert 3 == sum(each.is_quoted and each.binding.name == "C" for each in names.occurrences)


def test_the_first_iterable_of_a_comprehension_belongs_outside():
    names = analyse_names("class C:\n    x = 1\n    y = [x for _ in x]\n")
    assert names is not None

    uses = [each.binding.scope for each in names.occurrences if each.binding.name == "x" and each.bound_by is None]
    assert [None, ScopeKind.CLASS] == [scope and scope.kind for scope in uses]


def test_programs_of_python_2_and_broken_ones_have_no_names():
    assert analyse_names("print >>f, x\n") is None
    assert analyse_names("def f(:\n") is None


def test_deep_expressions_are_read():
    assert analyse_names("x = " + "a + " * 5000 + "a\n") is not None
