"""Definitions of every language, and the definition that contains a line."""

from __future__ import annotations

from specchat.syntax import Definition, definitions, enclosing_definition
from specchat.syntax.definitions import definition_kinds
from specchat.syntax.languages import LANGUAGES
from tests.each_row import each_row

PYTHON = """\
import os

@cache
def outer(x):
    def inner():
        return x

    return inner


class Parser:
    def feed(self):
        pass
"""
EXAMPLES = {
    "python": ("@d\ndef f():\n  pass\n", [("f", "function", 1, 3)]),
    "javascript": ("export const f = (a) => a\nclass A {\n m() {}\n}\nconst x = 1\n",
                   [("f", "function", 1, 1), ("A", "class", 2, 4), ("A.m", "method", 3, 3)]),
    "typescript": ("interface I { a: number }\nabstract class B { m(): void {} }\n",
                   [("I", "interface", 1, 1), ("B", "class", 2, 2), ("B.m", "method", 2, 2)]),
    "tsx": ("function V() { return <p>x</p> }\n", [("V", "function", 1, 1)]),
    "go": ("package a\nfunc F() {}\nfunc (t T) M() {}\ntype T struct {}\n",
           [("F", "function", 2, 2), ("M", "method", 3, 3), ("T", "type", 4, 4)]),
    "rust": ("impl Foo {\n  fn a(&self) {}\n}\nstruct S;\n",
             [("Foo", "impl", 1, 3), ("Foo.a", "function", 2, 2), ("S", "struct", 4, 4)]),
    "c": ("int *f(int a) { return 0; }\nstruct S { int a; };\nstruct S x;\n",
          [("f", "function", 1, 1), ("S", "struct", 2, 2)]),
    "cpp": ("template <class T>\nT f(T a) { return a; }\nvoid A::q() {}\nclass B { void m() {} };\n",
            [("f", "function", 1, 2), ("A::q", "function", 3, 3), ("B", "class", 4, 4), ("B.m", "function", 4, 4)]),
    "java": ("class A { A() {} void m() {} }",
             [("A", "class", 1, 1), ("A.A", "method", 1, 1), ("A.m", "method", 1, 1)]),
    "bash": ("f() {\n echo\n}\n", [("f", "function", 1, 3)]),
    "markdown": ("# A\ntext\n## B\nmore\n# C\n",
                 [("A", "section", 1, 4), ("A.B", "section", 3, 4), ("C", "section", 5, 5)]),
    "toml": ("[a]\nx = 1\n[[b.c]]\ny = 1\n", [("a", "table", 1, 2), ("b.c", "table", 3, 4)]),
    "json": ('{"a": {"b": 1},\n "c": 2}', [("a", "key", 1, 1), ("c", "key", 2, 2)]),
    "yaml": ("a:\n  b: 1\nc: 2\n", [("a", "key", 1, 2), ("c", "key", 3, 3)]),
    "css": (".a { color: red }\n", [(".a", "rule", 1, 1)]),
}  # fmt: skip


@each_row("language", EXAMPLES)
def test_every_language_has_its_definitions(language):
    text, expected = EXAMPLES[language]

    assert expected == [
        (each.qualified_name, each.kind, each.first_line, each.last_line) for each in definitions(text, language)
    ]


def test_every_table_has_an_example():
    assert {each for each in LANGUAGES if definition_kinds(each)} == set(EXAMPLES)


def test_a_line_belongs_to_the_innermost_definition():
    found = definitions(PYTHON, "python")

    names = [
        each.qualified_name if (each := enclosing_definition(found, line)) else "" for line in (1, 3, 4, 6, 8, 11, 13)
    ]

    assert ["", "outer", "outer", "outer.inner", "outer", "Parser", "Parser.feed"] == names


def test_plain_text_has_no_definitions():
    assert [] == definitions("def f(): pass", "")


def test_multibyte_characters_do_not_shift_lines():
    assert [Definition("f", "function", 2, 3)] == definitions("x = 'é – 漢'\ndef f():\n  'ü'\n", "python")


def test_a_tree_deeper_than_the_stack_is_walked():
    assert [] == definitions("(" * 20_000, "python")
