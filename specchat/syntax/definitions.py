"""Functions, classes and other named parts of a source file, and the one that contains a line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tree_sitter import Node

from specchat.syntax.languages import TABLES, node_kinds
from specchat.syntax.parse import find_nodes, node_text, syntax_tree

WRAPPER_TYPES = node_kinds("statements", "around_definitions")
FLAT_KINDS = ("key", "rule")  # only the outermost of these are definitions
FUNCTION_VALUE_TYPES = ("arrow_function", "function_expression", "function", "class")


@dataclass(frozen=True)
class Definition:
    """A named part of a text. Lines count from 1, `last_line` included; `container` is its parent's qualified name."""

    name: str
    kind: str
    first_line: int
    last_line: int
    container: str = ""

    @property
    def qualified_name(self) -> str:
        """The name with its container: `Parser.feed`."""
        return f"{self.container}.{self.name}" if self.container else self.name


def definitions(text: str, language: str) -> list[Definition]:
    """Every definition in the order of the text, outer before inner; none for plain text."""
    kinds, root = definition_kinds(language), syntax_tree(text, language)
    return list(_walk_definitions(root, language, kinds)) if root and kinds else []


@cache
def definition_kinds(language: str) -> Mapping[str, str]:
    """What kind of definition a node is, by its type."""
    kinds: Mapping[str, str] = TABLES.get(language, {}).get("definitions", {})
    return {each: kind for kind, types in kinds.items() for each in types.split()}


def enclosing_definition(candidates: Sequence[Definition], line: int) -> Definition | None:
    enclosing = [each for each in candidates if each.first_line <= line <= each.last_line]
    return min(enclosing, key=lambda each: each.last_line - each.first_line, default=None)


def _walk_definitions(root: Node, language: str, kinds: Mapping[str, str]) -> Iterator[Definition]:
    open_nodes: list[tuple[Node, Definition]] = []  # the definitions that contain the current node
    for node in find_nodes(root, language, kinds):
        while open_nodes and open_nodes[-1][0].end_byte <= node.start_byte:
            open_nodes.pop()
        is_in_flat = open_nodes and open_nodes[-1][1].kind in FLAT_KINDS
        if not is_in_flat and _is_definition(node) and (name := _definition_name(node)):
            container = open_nodes[-1][1].qualified_name if open_nodes else ""
            definition = Definition(name, kinds[node.type], *_line_range(node), container)
            open_nodes.append((node, definition))
            yield definition


def _is_definition(node: Node) -> bool:
    """A variable counts only if its value is a function, and a C struct only if it has a body."""
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value is not None and value.type in FUNCTION_VALUE_TYPES
    if node.type.endswith("_specifier"):
        return node.child_by_field_name("body") is not None
    return True


def _definition_name(node: Node) -> str:
    label = "type" if node.type == "impl_item" else "name"
    if named := node.child_by_field_name(label) or node.child_by_field_name("key"):
        return node_text(named).strip("\"'")
    declarator = node.child_by_field_name("declarator")
    while declarator and (inner := declarator.child_by_field_name("declarator")):
        declarator = inner
    if declarator:
        return node_text(declarator)
    first = node.named_children[0] if node.named_children else node  # a heading, a table's key, a selector
    return node_text(first).partition("\n")[0].strip("# ")


def _line_range(node: Node) -> tuple[int, int]:
    while (parent := node.parent) and parent.type in WRAPPER_TYPES:
        node = parent
    end = node.end_point
    last = end.row + 1 if end.column else end.row  # a node that includes the newline ends at column 0
    return node.start_point.row + 1, max(last, node.start_point.row + 1)
