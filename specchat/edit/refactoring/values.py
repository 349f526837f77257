"""Changes a constant or a default value, and adds a parameter with a default.

The name must be given its value in one place, by a literal of the same kind; a computed value is left to the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from specchat.edit.refactoring.literals import LiteralKind, in_quotes_of, kind_of_literal, written_in
from specchat.edit.refactoring.operations import AddParameter, NameKind, Rename, SetValue
from specchat.edit.refactoring.python_names import PYTHON, BoundBy, ScopeKind, analyse_names, parameter_name
from specchat.edit.refactoring.python_rename import check_new_name
from specchat.edit.refactoring.python_symbols import MemberSymbol, find_symbol, parse_python, scope_path
from specchat.edit.refactoring.removals import find_area, line_start
from specchat.edit.refactoring.splices import Area, RefusedError, Splice, Step, whole_area
from specchat.syntax.parse import COMMENT_TYPES, find_nodes, node_text, syntax_tree

DATA_LANGUAGES = frozenset(("json", "toml", "yaml"))
JAVASCRIPT_VALUES = {
    "variable_declarator": ("name", "value"), "assignment_pattern": ("left", "right"),
    "public_field_definition": ("name", "value"), "field_definition": ("property", "value"),
    "required_parameter": ("pattern", "value"), "enum_assignment": ("name", "value"),
}  # fmt: skip
C_VALUES = {
    "init_declarator": ("declarator", "value"), "preproc_def": ("name", "value"), "enumerator": ("name", "value"),
}  # fmt: skip
# The nodes that give a name its value, with the fields of the name and the value.
VALUE_NODES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "javascript": JAVASCRIPT_VALUES,
    "typescript": JAVASCRIPT_VALUES,
    "tsx": JAVASCRIPT_VALUES,
    "c": C_VALUES,
    "cpp": {**C_VALUES, "optional_parameter_declaration": ("declarator", "default_value")},
    "java": {"variable_declarator": ("name", "value")},
    "rust": {
        "const_item": ("name", "value"), "static_item": ("name", "value"), "let_declaration": ("pattern", "value"),
    },
    "go": {"const_spec": ("name", "value"), "var_spec": ("name", "value"), "short_var_declaration": ("left", "right")},
    "bash": {"variable_assignment": ("name", "value")},
    "json": {"pair": ("key", "value")},
    "toml": {"pair": ("", "")},
    "yaml": {"block_mapping_pair": ("key", "value"), "flow_pair": ("key", "value")},
}  # fmt: skip
DEFAULTS = ("default_parameter", "typed_default_parameter")


@dataclass(frozen=True)
class Place:
    """Where a name gets its value."""

    value: Node
    kind: NameKind


def set_value(text: str, language: str, change: SetValue, area: Area | None = None) -> Step:
    """The new value as a change of the text. RefusedError says why it is not certain."""
    root = syntax_tree(text, language)
    if root is None or root.has_error:
        raise RefusedError("the file does not parse")
    find = _python_places if language == PYTHON else _declared_places
    area = area or whole_area(text)
    places = [
        each
        for each in find(text, root, language, change)
        if _is_kind(each.kind, change.kind) and area.holds(each.value.start_byte, each.value.end_byte)
    ]
    if len(places) != 1:
        found = f"{len(places)} places" if places else "no place"
        raise RefusedError(f"{found} in the file give{'' if len(places) > 1 else 's'} `{change.name}` a value")
    place = places[0]
    old, new = node_text(place.value).strip(), written_in(change.value, language)
    if change.old_value and written_in(change.old_value, language).strip("\"'") != old.strip("\"'"):
        raise RefusedError(f"`{change.name}` is {old}, not {change.old_value}")
    _check_kinds(change.name, old, new, language)
    new = in_quotes_of(new, old)
    start = place.value.start_byte
    splices = (Splice(start, start + len(old.encode()), new),) if new != old else ()
    step = Step(f"change {place.kind} `{change.name}` from {old} to {new}", splices)
    new_root = syntax_tree(step.apply(text), language)
    if new_root is None or new_root.has_error:
        raise RefusedError("the new text would not parse")
    return step


def _check_kinds(name: str, old: str, new: str, language: str) -> None:
    kinds = [kind_of_literal(old, language), kind_of_literal(new, language)]
    if LiteralKind.OTHER in kinds:
        raise RefusedError(f"the value of `{name}` is no constant")
    if kinds[0] != kinds[1] and LiteralKind.NOTHING not in kinds:
        raise RefusedError(f"`{name}` is a {kinds[0]}, not a {kinds[1]}")


def _is_kind(kind: NameKind, wanted: NameKind) -> bool:
    """Whether the word of an instruction fits: a parameter's default is not called a constant."""
    if wanted in (NameKind.ANY, kind):
        return True
    if wanted in (NameKind.VARIABLE, NameKind.CONSTANT):
        return kind in (NameKind.VARIABLE, NameKind.CONSTANT, NameKind.ATTRIBUTE)
    return wanted == NameKind.ATTRIBUTE and kind == NameKind.CONSTANT


def _python_places(text: str, _root: Node, _language: str, change: SetValue) -> Iterator[Place]:
    """Defaults of parameters, and assignments to a name that is assigned once."""
    file = parse_python(text)
    wanted = tuple(change.scope.split(".")) if change.scope else ()
    for binding in file.names.bindings_named(change.name):
        assert binding.scope is not None
        owner = scope_path(binding.scope)
        if wanted and owner[-len(wanted) :] != wanted:
            continue
        is_member = binding.scope.kind is ScopeKind.CLASS
        for bound_by, node in binding.bound_by:
            value = _bound_value(node)
            if bound_by is not BoundBy.PARAMETER:  # a loop, an import or a computed value also counts as a place
                yield Place(value or node, NameKind.ATTRIBUTE if is_member else NameKind.VARIABLE)
            elif value is not None:
                yield Place(value, NameKind.PARAMETER)
    for owner in file.index.classes.values():
        path = scope_path(owner.scope)
        if not wanted or path[-len(wanted) :] == wanted:
            yield from (Place(value, NameKind.ATTRIBUTE) for value in owner.stored.get(change.name, []))


def _bound_value(node: Node) -> Node | None:
    """The value of `name = value`, `name: int = value` and of a default."""
    parent = node.parent
    while parent is not None and parent.type == "typed_parameter":
        parent = parent.parent
    if parent is None:
        return None
    if parent.type in DEFAULTS:
        return parent.child_by_field_name("value")
    is_assigned = parent.type == "assignment" and parent.child_by_field_name("left") == node
    value = parent.child_by_field_name("right") if is_assigned else None
    is_chained = value is not None and value.type == "assignment"
    return None if is_chained or (parent.parent and parent.parent.type == "assignment") else value


def _declared_places(text: str, root: Node, language: str, change: SetValue) -> Iterator[Place]:
    """Declarations with a value, in the part of the text that the instruction names."""
    area = find_area(text, language, change.scope)
    known = VALUE_NODES.get(language, {})
    for node in find_nodes(root, language, known):
        names, values = _named_and_value(node, *known[node.type])
        if (
            len(names) == len(values) == 1
            and node_text(names[0]).strip("\"'") == change.name
            and area.holds(node.start_byte, node.end_byte)
        ):
            kind = NameKind.PARAMETER if "parameter" in node.type or "pattern" in node.type else NameKind.CONSTANT
            yield Place(values[0], kind)
    if language not in DATA_LANGUAGES and len(_assignments(text, change.name)) > 1:
        raise RefusedError(f"`{change.name}` gets several values")


def _named_and_value(node: Node, name_field: str, value_field: str) -> tuple[Sequence[Node], Sequence[Node]]:
    if not name_field:  # a pair in TOML
        parts = [each for each in node.named_children if each.type not in COMMENT_TYPES]
        return parts[:1], parts[1:]
    values = node.children_by_field_name(value_field)
    values = [child for each in values for child in (each.named_children if each.type == "expression_list" else [each])]
    names = node.children_by_field_name(name_field)
    names = [child for each in names for child in (each.named_children if each.type == "expression_list" else [each])]
    return names, values


def _assignments(text: str, name: str) -> list[str]:
    word = rf"(?<![\w.$]){re.escape(name)}(?!\w)"
    return re.findall(
        rf"{word}(?:\s*:[^=;,()\n]+)?\s*(?:[-+*/%&|^]|<<|>>|\*\*|:)?=(?![=>])|{word}\s*(?:\+\+|--)|(?:\+\+|--){word}",
        text,
    )


# Adding a parameter


def add_parameter(text: str, language: str, change: AddParameter, area: Area | None = None) -> Step:
    """The new parameter as a change of the text. RefusedError says why it is not certain."""
    if language != PYTHON:
        raise RefusedError("parameters are added in Python only")
    check_new_name(change.function.rpartition(".")[2], change.name)
    file = parse_python(text)
    scope_name, _, name = change.function.rpartition(".")
    symbol = find_symbol(file, Rename(name, change.name, NameKind.FUNCTION, scope_name), area or whole_area(text))
    bindings = symbol.bindings if isinstance(symbol, MemberSymbol) else [symbol.binding]
    nodes = [node.parent for binding in bindings for kind, node in binding.bound_by if kind is BoundBy.FUNCTION]
    if len(nodes) != 1 or nodes[0] is None:
        raise RefusedError(f"`{name}` is defined {len(nodes)} times")
    function = nodes[0]
    inside = [each for each in file.names.occurrences if function.start_byte <= each.start < function.end_byte]
    if any(each.binding.name == change.name for each in inside):
        raise RefusedError(f"`{change.name}` is in use in `{name}`")
    default = written_in(change.default, language)
    if kind_of_literal(default, language) is LiteralKind.OTHER:
        raise RefusedError(f"{default} is no constant")
    written = f"{change.name}: {change.annotation} = {default}" if change.annotation else f"{change.name}={default}"
    parameters = function.child_by_field_name("parameters")
    assert parameters is not None
    splice = _parameter_splice(text.encode(), parameters, written)
    step = Step(f"add the parameter `{written}` to `{change.function}`", (splice,))
    new_names = analyse_names(step.apply(text))
    if new_names is None or len(new_names.occurrences) != len(file.names.occurrences) + 1 + _names_in(
        change.annotation
    ):
        raise RefusedError("the new text would not parse")
    return step


def _names_in(annotation: str) -> int:
    names = analyse_names(f"x: {annotation}\n") if annotation else None
    return len(names.occurrences) - 1 if names else 0


def _parameter_splice(raw: bytes, parameters: Node, written: str) -> Splice:
    """At the end, but before `**options`; on a line of its own where the others have one."""
    existing = [each for each in parameters.named_children if each.type != "comment"]
    last = existing[-1] if existing else None
    if last is None:
        return Splice(parameters.start_byte + 1, parameters.start_byte + 1, written)
    name = parameter_name(last)
    is_splat = name is not None and name.parent is not None and name.parent.type == "dictionary_splat_pattern"
    first = line_start(raw, last.start_byte)
    indent = raw[first : last.start_byte].decode()
    separator = f"\n{indent}" if not indent.strip() else " "
    if is_splat:
        return Splice(last.start_byte, last.start_byte, f"{written},{separator}")
    comma = re.match(rb"\s*,", raw[last.end_byte : parameters.end_byte])
    if comma:
        end = last.end_byte + comma.end()
        return Splice(end, end, f"{separator}{written},")
    return Splice(last.end_byte, last.end_byte, f",{separator}{written}")
