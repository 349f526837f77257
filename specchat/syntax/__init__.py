"""The structure of source files, by tree-sitter.

    languages.py     the language of a file, and its grammar, imported at first use
    sniff.py         the language of a text without a name
    parse.py         syntax trees, syntax errors, comments and docstrings
    definitions.py   functions, classes and other named parts
    statements.py    the statements of a file, and their members
    text_chunks.py   a text in pieces that make sense alone

A file of any other language is plain text: lines without structure. Knows no model, no request and no other package of
specchat.
"""

from specchat.syntax.definitions import Definition, definitions, enclosing_definition
from specchat.syntax.languages import PLAIN_TEXT, language_of
from specchat.syntax.parse import SyntaxDiagnostic, comments, syntax_diagnostics
from specchat.syntax.text_chunks import Chunk, split_chunks

__all__ = [
    "PLAIN_TEXT", "Chunk", "Definition", "SyntaxDiagnostic", "comments", "definitions", "enclosing_definition",
    "language_of", "split_chunks", "syntax_diagnostics",
]  # fmt: skip
