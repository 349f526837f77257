"""Which language a file is in, and that a grammar is imported when it is needed and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specchat.syntax import comments, language_of, syntax_diagnostics
from specchat.syntax.languages import LANGUAGES, load_grammar


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [("a/b.py", "", "python"), ("A.PY", "", "python"), ("x.tsx", "", "tsx"), ("notes", "", ""), ("a.weird", "x", ""),
     ("tool", "#!/usr/bin/env -S python3.12 -u\n", "python"), ("tool", "#!/bin/sh", "bash"),
     ("tool", "#!/usr/bin/node\n", "javascript"), ("tool", "#!/usr/bin/perl\n", ""), (".bashrc", "", "bash"),
     ("tool", "text #!/bin/sh", ""), ("stdin.toml", "", "toml")],
)  # fmt: skip
def test_a_language_is_known_by_name_or_first_line(name, text, language):
    assert language == language_of(name, text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_grammar_loads_and_knows_a_good_text_from_a_bad_one(language):
    assert load_grammar(language) is not None
    assert [] == syntax_diagnostics("", language)


@pytest.mark.parametrize(
    ("language", "text", "line"),
    [("javascript", "let a = 1\nfunction f( {}\n", 2), ("go", "package a\nfunc f( {\n", 2), ("c", "int f() {\n", 1),
     ("css", "a {\n color: red\n", 1), ("yaml", "a: [1\nb: 2\n", 1)],
)  # fmt: skip
def test_a_fault_has_its_line(language, text, line):
    found = syntax_diagnostics(text, language)

    assert found
    assert line <= found[0].line <= line + 1


def test_what_is_no_language_has_no_faults_to_tell():
    assert syntax_diagnostics("(((", "") is None


def test_a_missing_grammar_makes_a_text_of_a_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter_go", None)
    load_grammar.cache_clear()

    assert syntax_diagnostics("package", "go") is None
    assert ["// still seen"] == comments("package a\n// still seen\n", "go")
    load_grammar.cache_clear()


def test_no_grammar_is_imported_before_a_text_comes():
    script = "import sys, specchat.syntax; print([name for name in sys.modules if name.startswith('tree_sitter_')])"

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30).stdout

    assert "[]\n" == said
