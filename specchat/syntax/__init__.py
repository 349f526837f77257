"""What source files are made of, by tree-sitter: languages, definitions, chunks, comments, syntax errors.

A language whose grammar is not installed is text: it has lines, and nothing else is known of it. Grammars are imported
when a text of their language comes along. Knows no model, no request and no other package of ours.
"""

from specchat.syntax.comments import comments
from specchat.syntax.definitions import Definition, definitions, enclosing_definition
from specchat.syntax.languages import PLAIN_TEXT, language_of
from specchat.syntax.parse import SyntaxDiagnostic, syntax_diagnostics
from specchat.syntax.text_chunks import Chunk, split_chunks

__all__ = [
    "PLAIN_TEXT", "Chunk", "Definition", "SyntaxDiagnostic", "split_chunks", "comments", "definitions", "enclosing_definition", "syntax_diagnostics",
    "language_of",
]  # fmt: skip
