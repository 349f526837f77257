"""A text as a syntax tree, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node, Parser, Query, QueryCursor

from specchat.syntax.languages import load_grammar

MAX_SHOWN_CHARACTERS = 60
MAX_PARSED_CHARACTERS = 2**21


@dataclass(frozen=True)
class SyntaxDiagnostic:
    """A place where a text does not follow its grammar; lines count from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def syntax_tree(text: str, language: str) -> Node | None:
    """The root of the tree; None where there is no grammar, and for a text that would take seconds.

    Rows and columns are of the UTF-8 text.
    """
    known = load_grammar(language) if len(text) <= MAX_PARSED_CHARACTERS else None
    return Parser(known).parse(text.encode()).root_node if known else None


def syntax_diagnostics(text: str, language: str) -> list[SyntaxDiagnostic] | None:
    """Every fault, in the order of the text; None when nobody can tell. tree-sitter goes on after a fault."""
    root = syntax_tree(text, language)
    if root is None:
        return None
    return [_diagnostic(node) for node in _error_nodes(root)]


def find_nodes(root: Node, language: str, types: Iterable[str]) -> list[Node]:
    """Every node of these types in the order of the text, outer ones first; searched in C, for files may be long."""
    known = load_grammar(language)
    types = [each for each in types if known and known.id_for_node_kind(each, True) is not None]
    if known is None or not types:
        return []
    query = Query(known, "\n".join(f"({each}) @found" for each in types))
    found = QueryCursor(query).captures(root).get("found", [])
    return sorted(found, key=lambda node: (node.start_byte, -node.end_byte))


def node_text(node: Node) -> str:
    """The text of a node."""
    return (node.text or b"").decode(errors="replace")


def _error_nodes(root: Node) -> Iterator[Node]:
    """Nodes that are errors or stand for missing text, without recursion: trees of broken texts are deep."""
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            yield node
        waiting.extend(child for child in reversed(node.children) if child.has_error)


def _diagnostic(node: Node) -> SyntaxDiagnostic:
    if node.is_missing:
        return SyntaxDiagnostic(node.start_point.row + 1, f"{node.type!r} is missing")
    shown = node_text(node).strip().partition("\n")[0][:MAX_SHOWN_CHARACTERS]
    return SyntaxDiagnostic(node.start_point.row + 1, f"not understood: {shown}" if shown else "not understood")
