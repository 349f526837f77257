"""What an edit leaves without a definition or outside of its function, in languages whose grammar tells names apart.

It knows the names of one text only, so it is about those that the text itself defined before. A place that may bind a
name counts as one that does: what is found is certain, what is not found may be wrong all the same.
"""

import re

from tree_sitter import Node

from specchat.syntax.definitions import definitions, enclosing_definition
from specchat.syntax.languages import node_kinds
from specchat.syntax.parse import ancestors, field_of, find_nodes, line_of, node_text, syntax_tree

SCRIPTS = ("javascript", "typescript", "tsx")
# names that a program has without a definition, and that older programs import or define
GLOBALS, IMPORTS, FUNCTIONS = (node_kinds("names", key) for key in ("globals", "imports", "functions"))
BINDING_FIELDS, BINDING_LEFT, USING_BY_NAME = (
    node_kinds("names", key) for key in ("binding_fields", "binding_left", "using_by_name")
)
BINDING = re.compile(
    r"parameter|import|use_|pattern|label|extern|capture|token_tree|preproc|^(?:marker_)?annotation|attribute|namespace|package"
)


def lost_names(old: str, new: str, language: str) -> dict[str, int]:
    """What the new text uses, with its first line, and only the old one defines; nothing where that is unsure."""
    roots = [syntax_tree(text, language) for text in (old, new)]
    if not node_kinds(language, "names") or not roots[0] or not roots[1] or roots[1].has_error:
        return {}
    if language not in SCRIPTS and _imports(roots[1], language) - _imports(roots[0], language):
        return {}  # these may bring the names
    bound, _used = _names(roots[0], old, language)
    still_bound, used = _names(roots[1], new, language)
    gone = bound - {(name, scope) for name, scope in bound if name in {each for each, _scope in still_bound}}
    lost = [(name, line) for name, scope, line in used if any((name, each) in gone for each in _outwards(scope))]
    return dict(each for each in reversed(lost) if each[0] not in GLOBALS)


def _outwards(scope: str) -> list[str]:
    """A scope and those around it: "A.f", "A" and "" for "A.f"."""
    parts = scope.split(".") if scope else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _names(root: Node, text: str, language: str) -> tuple[set[tuple[str, str]], list[tuple[str, str, int]]]:
    """The names that a text binds, each with the definition around it, and those that it uses, with their lines."""
    known = definitions(text, language)
    bound, used = set[tuple[str, str]](), list[tuple[str, str, int]]()
    for node in find_nodes(root, language, node_kinds(language, "names")):
        name, line = node_text(node), line_of(node)
        around = enclosing_definition(known, line)
        is_own = around is not None and around.name == name and around.first_line == line
        scope = "" if around is None else around.container if is_own else around.qualified_name
        if _binds(node):
            bound.add((name, scope))
        elif _is_use(node, text):
            used.append((name, scope, line))
    return bound, used


def _binds(node: Node) -> bool:
    """Whether a name may be bound where it stands."""
    parent = node.parent
    if parent is None or node.type == "shorthand_property_identifier_pattern":
        return True
    field = field_of(node)
    outer = parent.parent if parent.type == "expression_list" else parent
    is_left = (
        outer is not None and outer.type in BINDING_LEFT and field_of(parent if outer != parent else node) == "left"
    )
    is_named = field == "name" and parent.type not in USING_BY_NAME
    return is_left or is_named or field in BINDING_FIELDS or bool(BINDING.search(parent.type))


def _is_use(node: Node, text: str) -> bool:
    """Whether a name is certainly one of this file: no member of something, and in Java of no class above."""
    parent = node.parent
    assert parent is not None
    if parent.type == "export_specifier":
        return not any(each.child_by_field_name("source") for each in ancestors(node))
    if parent.type == "method_invocation" and field_of(node) == "name":
        is_own = parent.child_by_field_name("object") is None
        return is_own and not re.search(r"\b(?:extends|implements)\b|import static", text)
    return field_of(node) not in ("field", "property", "attribute") and "scoped" not in parent.type


def strayed(text: str, language: str) -> list[tuple[int, str]]:
    """Each `await` in a function that is not async and each `return` outside of one, with its line."""
    root, found = syntax_tree(text, language), list[tuple[int, str]]()
    if root is None or language not in (*SCRIPTS, "rust"):
        return found
    for node in find_nodes(root, language, ("await_expression", "return_statement")):
        function = next((each for each in ancestors(node) if each.type in FUNCTIONS), None)
        line = line_of(node)
        if node.type == "return_statement" and function is None:
            found.append((line, "`return` stands outside of a function"))
        if node.type == "await_expression" and function is not None and not _may_await(function):
            found.append((line, "`await` stands in a function that is not async"))
    return found


def _may_await(function: Node) -> bool:
    return function.type in ("async_block", "closure_expression", "class_static_block") or any(
        "async" in node_text(each).split() for each in function.children if each.type in ("async", "function_modifiers")
    )


def _imports(root: Node, language: str) -> set[str]:
    return {node_text(each) for each in find_nodes(root, language, IMPORTS)}
