"""Properties of renamings, on small programs made at random: they can be taken back, and mean the same."""

from __future__ import annotations

import ast

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specchat.edit.operations import NameKind, Rename
from specchat.edit.source_text import make_source
from specchat.refactoring.python_rename import rename_in_python
from specchat.refactoring.splices import RefusedError

NAMES = st.sampled_from(["a", "b", "c", "len"])
FRESH = "renamed"
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, st.sampled_from(["1", "'a'", 'f"{a}"'])),
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}({}={})".format, NAMES, NAMES, inner),
        st.builds("[{} for {} in {}]".format, inner, NAMES, inner),
        st.builds("(lambda {}: {})".format, NAMES, inner),
        st.builds("{}.{}".format, inner.filter(lambda text: not text[0].isdigit()), NAMES),
        st.builds("({} := {})".format, NAMES, inner),
    ),
    max_leaves=4,
)


def indented(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for text in lines for line in text.splitlines())


SIMPLE = st.one_of(
    st.builds("{} = {}".format, NAMES, EXPRESSIONS), st.builds("{} += 1".format, NAMES), EXPRESSIONS,
    st.builds("import {} as {}".format, NAMES, NAMES), st.builds("del {}".format, NAMES),
    st.builds("global {}".format, NAMES), st.builds("nonlocal {}".format, NAMES),
    st.builds("with {} as {}: pass".format, EXPRESSIONS, NAMES),
    st.builds("for {} in {}: {}".format, NAMES, EXPRESSIONS, NAMES),
)  # fmt: skip


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bodies = st.lists(inner, min_size=1, max_size=3).map(indented)
    return st.one_of(
        st.builds("def {}({}={}):\n{}".format, NAMES, NAMES, EXPRESSIONS, bodies),
        st.builds("class {}({}):\n{}".format, NAMES, NAMES, bodies),
        st.builds("if {}:\n{}".format, EXPRESSIONS, bodies),
        st.builds("try:\n{}except {} as {}: pass".format, bodies, NAMES, NAMES),
    )


STATEMENTS = st.recursive(SIMPLE, compound, max_leaves=8)
PROGRAMS = st.lists(STATEMENTS, min_size=1, max_size=5).map(
    lambda lines: "".join(f"{each.rstrip()}\n" for each in lines)
)
KINDS = (NameKind.ANY, NameKind.FUNCTION, NameKind.CLASS, NameKind.PARAMETER, NameKind.VARIABLE)


def renamed(text: str, rename: Rename) -> str:
    return rename_in_python({"a.py": text}, rename)["a.py"].apply(text)


def compiles(text: str) -> bool:
    try:
        compile(text, "text", "exec")
    except SyntaxError:
        return False
    return True


class NamesRemoved(ast.NodeTransformer):
    """A tree in which the two names are the same."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and value in self.names:
                setattr(node, field, "?")
            if isinstance(value, list):
                setattr(node, field, ["?" if each in self.names and isinstance(each, str) else each for each in value])
        return self.generic_visit(node)


@pytest.mark.full
@settings(max_examples=15)
@given(PROGRAMS, st.sampled_from(["a", "b", "c"]))
def test_a_renaming_there_and_back_gives_the_same_bytes_and_the_same_tree(program, old):
    assume(compiles(program))
    for rename in (Rename(old, FRESH, kind) for kind in KINDS):
        try:
            new = renamed(program, rename)
            again = renamed(new, Rename(FRESH, rename.old))
        except RefusedError:
            continue
        assert program == again
        trees = [ast.dump(NamesRemoved(rename.old, FRESH).visit(ast.parse(text))) for text in (program, new)]
        assert trees[0] == trees[1]
        assert compiles(new)


@settings(max_examples=15, suppress_health_check=[HealthCheck.filter_too_much])
@given(PROGRAMS, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]))
def test_what_is_not_renamed_keeps_its_bytes(program, newline, codec):
    text = f"# coding: {codec.removesuffix('-sig')}\n# é\n{program}def old(): pass\n"
    assume(compiles(text))
    raw = text.replace("\n", newline).encode(codec)
    source = make_source(raw, "a.py")

    new = source.encode(renamed(source.text, Rename("old", "new")))

    assert raw.replace(b"def old", b"def new") == new


@pytest.mark.parametrize("newline", ["\r", "\r\n", "\n"])
def test_every_line_end_of_python_is_one(newline):
    text = f"count = 1\ny = 2\r\nz = y{newline}print(y, z)\n"

    made = renamed(text, Rename("y", "total", NameKind.VARIABLE))

    assert made == f"count = 1\ntotal = 2\r\nz = total{newline}print(total, z)\n"
