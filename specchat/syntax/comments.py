"""Comments, and the docstrings of Python."""

from __future__ import annotations

from tree_sitter import Node

from specchat.syntax.parse import find_nodes, node_text, syntax_tree

COMMENT_TYPES = ("comment", "line_comment", "block_comment", "html_block_comment")


def comments(text: str, language: str) -> list[str]:
    """Every comment and docstring in the order of the text, stripped; none for plain text."""
    root = syntax_tree(text, language)
    if root is None:
        return []
    nodes = find_nodes(root, language, (*COMMENT_TYPES, "string") if language == "python" else COMMENT_TYPES)
    return [node_text(node).strip() for node in nodes if node.type != "string" or _is_docstring(node)]


def _is_docstring(node: Node) -> bool:
    statement = node.parent
    if statement is None or statement.type != "expression_statement":
        return False
    block = statement.parent
    return block is not None and block.type in ("module", "block") and block.named_children[0] == statement
