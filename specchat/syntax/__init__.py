"""The structure of source files, by tree-sitter.

    languages.py, .toml  the language of a file, and its grammar, imported at first use; kinds of nodes, as data
    sniff.py, telling_lines.toml  the language of a text without a name
    parse.py         syntax trees, syntax errors, comments and docstrings
    definitions.py   functions, classes and other named parts
    statements.py    the statements of a file, and their members
    shell_commands.py  the commands of a line for the shell
    names.py         names whose definition an edit removed

A file of any other language is plain text: lines without structure. Knows no model, no request and no other package of
specchat.
"""

from specchat.syntax.definitions import Definition, definitions, enclosing_definition
from specchat.syntax.languages import PLAIN_TEXT, language_of
from specchat.syntax.parse import SyntaxDiagnostic, comments, syntax_diagnostics

__all__ = [
    "PLAIN_TEXT", "Definition", "SyntaxDiagnostic", "comments", "definitions", "enclosing_definition",
    "language_of", "syntax_diagnostics",
]  # fmt: skip
