"""Functions, classes and their like: where they are, and which of them a line belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from specchat.syntax.parse import find_nodes, node_text, syntax_tree

JAVASCRIPT_KINDS = {
    "function_declaration": "function", "generator_function_declaration": "function", "method_definition": "method",
    "class_declaration": "class", "variable_declarator": "function",
}  # fmt: skip
TYPESCRIPT_KINDS = {
    "abstract_class_declaration": "class", "interface_declaration": "interface", "type_alias_declaration": "type",
    "enum_declaration": "enum", "internal_module": "module",
}  # fmt: skip
C_KINDS = {"function_definition": "function", "struct_specifier": "struct", "enum_specifier": "enum"}
DEFINITION_KINDS: Mapping[str, Mapping[str, str]] = {
    "python": {"function_definition": "function", "class_definition": "class"},
    "javascript": JAVASCRIPT_KINDS,
    "typescript": {**JAVASCRIPT_KINDS, **TYPESCRIPT_KINDS},
    "tsx": {**JAVASCRIPT_KINDS, **TYPESCRIPT_KINDS},
    "go": {"function_declaration": "function", "method_declaration": "method", "type_spec": "type"},
    "rust": {
        "function_item": "function", "struct_item": "struct", "enum_item": "enum", "trait_item": "trait",
        "impl_item": "impl", "mod_item": "module", "macro_definition": "macro",
    },
    "c": C_KINDS,
    "cpp": {**C_KINDS, "class_specifier": "class", "namespace_definition": "namespace"},
    "java": {
        "class_declaration": "class", "interface_declaration": "interface", "enum_declaration": "enum",
        "record_declaration": "record", "method_declaration": "method", "constructor_declaration": "method",
    },
    "bash": {"function_definition": "function"},
    "markdown": {"section": "section"},
    "toml": {"table": "table", "table_array_element": "table"},
    "json": {"pair": "key"},
    "yaml": {"block_mapping_pair": "key"},
    "css": {"rule_set": "rule"},
}  # fmt: skip
# What a definition stands in when more belongs to it than itself: decorators, `export`, `const`, `template <…>`
WRAPPER_TYPES = (
    "decorated_definition", "export_statement", "lexical_declaration", "variable_declaration", "type_declaration",
    "template_declaration",
)  # fmt: skip
FLAT_KINDS = ("key", "rule")  # of these, only the outermost are definitions
FUNCTION_VALUE_TYPES = ("arrow_function", "function_expression", "function", "class")


@dataclass(frozen=True)
class Definition:
    """A named piece of a text; lines count from 1, the last one belongs to it. `within` is what it stands in."""

    name: str
    kind: str
    first_line: int
    last_line: int
    container: str = ""

    @property
    def qualified_name(self) -> str:
        """`Parser.feed`: the name with those of its surroundings."""
        return f"{self.container}.{self.name}" if self.container else self.name


def definitions(text: str, language: str) -> list[Definition]:
    """Every definition in the order of the text, outer ones before inner ones; none where there is no grammar."""
    kinds, root = DEFINITION_KINDS.get(language), syntax_tree(text, language)
    return list(_walk_definitions(root, language, kinds)) if root and kinds else []


def enclosing_definition(candidates: Sequence[Definition], line: int) -> Definition | None:
    """The innermost definition that a line belongs to."""
    around = [each for each in candidates if each.first_line <= line <= each.last_line]
    return min(around, key=lambda each: each.last_line - each.first_line) if around else None


def _walk_definitions(root: Node, language: str, kinds: Mapping[str, str]) -> Iterator[Definition]:
    """What stands inside of another is told by where it ends."""
    around: list[tuple[Node, Definition]] = []
    for node in find_nodes(root, language, kinds):
        while around and around[-1][0].end_byte <= node.start_byte:
            around.pop()
        inside_flat = around and around[-1][1].kind in FLAT_KINDS
        if not inside_flat and _is_definition(node) and (name := _definition_name(node)):
            within = around[-1][1].qualified_name if around else ""
            definition = Definition(name, kinds[node.type], *_line_range(node), within)
            around.append((node, definition))
            yield definition


def _is_definition(node: Node) -> bool:
    """Of variables, only those that name a function; of C structs, only those with a body."""
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value is not None and value.type in FUNCTION_VALUE_TYPES
    if node.type.endswith("_specifier"):
        return node.child_by_field_name("body") is not None
    return True


def _definition_name(node: Node) -> str:
    """The word that a definition is known by."""
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
    last = end.row + 1 if end.column else end.row  # a node that takes the newline with it ends at column 0
    return node.start_point.row + 1, max(last, node.start_point.row + 1)
