"""The language of a file, and the lazy import of grammars."""

from __future__ import annotations

import subprocess
import sys

from specchat.syntax import comments, language_of, syntax_diagnostics
from specchat.syntax.languages import LANGUAGES, load_grammar
from tests.each_row import each_row


@each_row(
    "name, text, language",
    [("a/b.py", "", "python"), ("A.PY", "", "python"), ("x.tsx", "", "tsx"), ("notes", "", ""), ("a.weird", "x", ""),
     ("tool", "#!/usr/bin/env -S python3.12 -u\n", "python"), ("tool", "#!/bin/sh", "bash"),
     ("tool", "#!/usr/bin/node\n", "javascript"), ("tool", "#!/usr/bin/perl\n", ""), (".bashrc", "", "bash"),
     ("tool", "text #!/bin/sh", ""), ("stdin.toml", "", "toml")],
)  # fmt: skip
def test_the_file_name_or_the_first_line_gives_the_language(name, text, language):
    assert language == language_of(name, text)


@each_row("language", LANGUAGES)
def test_every_grammar_loads_and_accepts_an_empty_text(language):
    assert load_grammar(language) is not None
    assert [] == syntax_diagnostics("", language)


@each_row(
    "language, text, line",
    [("javascript", "let a = 1\nfunction f( {}\n", 2), ("go", "package a\nfunc f( {\n", 2), ("c", "int f() {\n", 1),
     ("css", "a {\n color: red\n", 1), ("yaml", "a: [1\nb: 2\n", 1)],
)  # fmt: skip
def test_a_syntax_error_has_a_line_number(language, text, line):
    found = syntax_diagnostics(text, language)

    assert found
    assert line <= found[0].line <= line + 1


def test_an_unknown_language_is_plain_text():
    assert syntax_diagnostics("(((", "") is None
    assert [] == comments("// a", "")


def test_no_grammar_is_imported_before_a_text_is_parsed():
    script = "import sys, specchat.syntax; print([name for name in sys.modules if name.startswith('tree_sitter_')])"

    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=180)

    assert "[]\n" == output.stdout
