"""Syntax trees of texts, their syntax errors, and their comments."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from specchat.syntax.languages import load_grammar

COMMENT_TYPES = ("comment", "line_comment", "block_comment", "html_block_comment")
MAX_SHOWN_CHARACTERS = 60
MAX_PARSED_CHARACTERS = 2**21
MAX_TREE_DEPTH = 10_000  # a query takes minutes where its depth no longer fits into 16 bits


@dataclass(frozen=True)
class SyntaxDiagnostic:
    """A syntax error; lines count from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def syntax_tree(text: str, language: str) -> Node | None:
    """The root of the tree; None for plain text, and for a text that would take seconds to look at.

    Rows and columns count UTF-8 bytes.
    """
    grammar = load_grammar(language) if len(text) <= MAX_PARSED_CHARACTERS else None
    root = Parser(grammar).parse(text.encode()).root_node if grammar else None
    return None if root is None or _is_too_deep(root) else root


def _is_too_deep(root: Node) -> bool:
    """Whether its nodes are nested more deeply than people write. Small trees are not looked at."""
    if root.descendant_count <= MAX_TREE_DEPTH:
        return False
    cursor, depth = root.walk(), 0
    while depth <= MAX_TREE_DEPTH:
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False
            depth -= 1
    return True


def syntax_diagnostics(text: str, language: str) -> list[SyntaxDiagnostic] | None:
    """Every syntax error in the order of the text; None when there is no tree. tree-sitter continues after an error."""
    root = syntax_tree(text, language)
    if root is None:
        return None
    return [_diagnostic(node) for node in _error_nodes(root)]


def find_nodes(root: Node, language: str, types: Iterable[str]) -> list[Node]:
    """Every node of these types in the order of the text, outer before inner. It runs in C: files may be long."""
    grammar = load_grammar(language)
    query = _query(grammar, tuple(types)) if grammar else None
    nodes = QueryCursor(query).captures(root).get("node", []) if query else []
    return sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte))


@cache
def _query(grammar: Language, types: tuple[str, ...]) -> Query | None:
    """What finds nodes of those types that the grammar has; None for none. To compile it takes up to 12 ms."""
    known = [each for each in types if grammar.id_for_node_kind(each, True) is not None]
    return Query(grammar, "\n".join(f"({each}) @node" for each in known)) if known else None


def ancestors(node: Node) -> Iterator[Node]:
    """The nodes around a node, the innermost first."""
    while node.parent is not None:
        node = node.parent
        yield node


def field_of(node: Node) -> str:
    """The field of the parent in which a node stands; "" for none."""
    parent = node.parent
    if parent is None:
        return ""
    return parent.field_name_for_child(parent.children.index(node)) or ""


def contains(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def line_of(node: Node) -> int:
    return node.start_point.row + 1


def node_text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def blanked(text: str, nodes: Iterable[Node]) -> bytes:
    """A text with blanks in the place of these nodes; its lines stay."""
    raw = text.encode()
    left = bytearray(raw)
    for node in nodes:
        left[node.start_byte : node.end_byte] = re.sub(rb"[^\n]", b" ", raw[node.start_byte : node.end_byte])
    return bytes(left)


def _error_nodes(root: Node) -> Iterator[Node]:
    """Nodes that are errors or mark missing text. Not recursive, because trees of broken texts are deep."""
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        if node.is_error or node.is_missing:
            yield node
        stack.extend(child for child in reversed(node.children) if child.has_error)


def _diagnostic(node: Node) -> SyntaxDiagnostic:
    if node.is_missing:
        return SyntaxDiagnostic(line_of(node), f"{node.type!r} is missing")
    shown = node_text(node).strip().partition("\n")[0][:MAX_SHOWN_CHARACTERS]
    return SyntaxDiagnostic(line_of(node), f"syntax error: {shown}" if shown else "syntax error")


@dataclass(frozen=True)
class Comment:
    """A comment or docstring, stripped, and the beginning of the code that it is about; "" for the whole text.

    The line where it begins counts from 1.
    """

    text: str
    code: str
    line: int


def comments(text: str, language: str) -> list[Comment]:
    """Every comment and docstring in the order of the text; none for plain text."""
    root = syntax_tree(text, language)
    if root is None:
        return []
    lines = text.encode().split(b"\n")
    return [
        Comment(
            node_text(node).strip(),
            _code_of_docstring(node) if node.type == "string" else _code_of(node, lines),
            line_of(node),
        )
        for node in comment_nodes(root, language)
    ]


def comment_nodes(root: Node, language: str) -> list[Node]:
    """The nodes of all comments and docstrings in the order of the text."""
    nodes = find_nodes(root, language, (*COMMENT_TYPES, "string") if language == "python" else COMMENT_TYPES)
    return [node for node in nodes if node.type != "string" or _is_docstring(node)]


def _code_of(comment: Node, lines: Sequence[bytes]) -> str:
    """The code before a comment in its line; else the line of the code that follows it."""
    before = lines[comment.start_point.row][: comment.start_point.column].strip()
    following = comment.next_named_sibling
    while following is not None and following.type in COMMENT_TYPES:
        following = following.next_named_sibling
    code = before or (lines[following.start_point.row].strip() if following is not None else b"")
    return code.decode(errors="replace")


def _code_of_docstring(docstring: Node) -> str:
    """`def add` for the docstring of this function."""
    definition = docstring.parent and docstring.parent.parent and docstring.parent.parent.parent
    name = definition.child_by_field_name("name") if definition else None
    if definition is None or name is None:
        return ""
    return (definition.text or b"")[: name.end_byte - definition.start_byte].decode(errors="replace")


def _is_docstring(node: Node) -> bool:
    statement = node.parent
    if statement is None or statement.type != "expression_statement":
        return False
    block = statement.parent
    return block is not None and block.type in ("module", "block") and block.named_children[0] == statement
