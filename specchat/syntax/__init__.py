"""What source files are made of, by tree-sitter: languages, definitions, chunks, comments, syntax errors.

A language whose grammar is not installed is text: it has lines, and nothing else is known of it. Grammars are imported
when a text of their language comes along. Knows no model, no request and no other package of ours.
"""

from specchat.syntax.comments import comments
from specchat.syntax.definitions import Definition, definitions, enclosing
from specchat.syntax.languages import TEXT, language_of
from specchat.syntax.parse import SyntaxFault, faults
from specchat.syntax.text_chunks import Chunk, chunks

__all__ = [
    "TEXT", "Chunk", "Definition", "SyntaxFault", "chunks", "comments", "definitions", "enclosing", "faults",
    "language_of",
]  # fmt: skip
