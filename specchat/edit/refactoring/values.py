"""Changes a constant or a default value, and adds a parameter with a default.

The name must be given its value in one place, by a literal of the same kind; a computed value is left to the model.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from specchat.edit.refactoring.literals import LiteralKind, in_quotes_of, kind_of_literal, written_in
from specchat.edit.refactoring.operations import AddParameter, NameKind, SetValue
from specchat.edit.refactoring.python_dangers import PLAIN_DECORATORS
from specchat.edit.refactoring.python_rename import check_new_name
from specchat.edit.refactoring.removals import find_area, line_start
from specchat.edit.refactoring.splices import (
    Area,
    RefusedError,
    Splice,
    Step,
    UnknownLanguageError,
    splice_text,
    whole_area,
)
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
PYTHON = "python"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Place:
    """Where a name gets its value: the bytes of the value; none where it is computed or not written down."""

    start: int
    end: int
    kind: NameKind


def set_value(text: str, language: str, change: SetValue, area: Area | None = None) -> Step:
    """The new value as a change of the text. RefusedError says why it is not certain."""
    root = syntax_tree(text, language)
    if root is None or root.has_error:
        raise RefusedError("the file does not parse")
    found = _python_places(text, change) if language == PYTHON else _declared_places(text, root, language, change)
    area = area or whole_area(text)
    places = [each for each in found if _is_kind(each.kind, change.kind) and area.holds(each.start, each.end)]
    if len(places) != 1:
        count = f"{len(places)} places" if places else "no place"
        raise RefusedError(f"{count} in the file give{'' if len(places) > 1 else 's'} `{change.name}` a value")
    place = places[0]
    old = text.encode()[place.start : place.end].decode().strip()
    new = written_in(change.value, language)
    if change.old_value and written_in(change.old_value, language).strip("\"'") != old.strip("\"'"):
        raise RefusedError(f"`{change.name}` is {old}, not {change.old_value}")
    _check_kinds(change.name, old, new, language)
    new = in_quotes_of(new, old)
    splices = (Splice(place.start, place.start + len(old.encode()), new),) if new != old else ()
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


def _python_places(text: str, change: SetValue) -> Iterator[Place]:
    """Every place that gives the name a value: defaults, assignments, and what else binds it."""
    wanted = tuple(filter(None, change.scope.split(".")))
    for path, node in _walk(ast.parse(text), ()):
        if wanted and path[-len(wanted) :] != wanted:
            continue
        yield from _bound_values(text, node, change.name)


def _walk(node: ast.AST, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    """All nodes, each with the names of the classes and functions around it; `self.x` is in the class."""
    for child in ast.iter_child_nodes(node):
        is_scope = isinstance(child, (*FUNCTIONS, ast.ClassDef))
        if isinstance(child, ast.Assign | ast.AnnAssign) and _is_of_self(_target(child)):
            yield path[:-1], child
            yield from _walk(child, path[:-1])
            continue
        yield path, child
        yield from _walk(child, (*path, child.name) if is_scope else path)


def _target(node: ast.Assign | ast.AnnAssign) -> ast.expr | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return targets[0] if len(targets) == 1 else None


def _is_of_self(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _bound_values(text: str, node: ast.AST, name: str) -> Iterator[Place]:
    """The places in one node, without its children. A place that is no plain assignment is empty."""
    if isinstance(node, ast.arguments):
        arguments = [*node.posonlyargs, *node.args]
        defaults = [None] * (len(arguments) - len(node.defaults)) + list(node.defaults)
        for argument, default in zip((*arguments, *node.kwonlyargs), (*defaults, *node.kw_defaults), strict=True):
            if argument.arg == name and default is not None:
                yield _place(text, default, NameKind.PARAMETER)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and _name_of(_target(node)) == name:
        kind = NameKind.ATTRIBUTE if isinstance(_target(node), ast.Attribute) else NameKind.CONSTANT
        if node.value is not None:
            yield _place(text, node.value, kind)
    elif isinstance(node, ast.Assign):
        targets = [each for target in node.targets for each in ast.walk(target) if _is_stored(each)]
        yield from (Place(0, 0, NameKind.CONSTANT) for each in targets if _name_of(each) == name)
    elif isinstance(node, ast.AugAssign | ast.For | ast.NamedExpr | ast.comprehension):
        found = [each for each in ast.walk(node.target) if _name_of(each) == name]
        yield from (Place(0, 0, NameKind.CONSTANT) for _each in found)


def _is_stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _name_of(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _place(text: str, value: ast.expr, kind: NameKind) -> Place:
    return Place(_position(text, value.lineno, value.col_offset), _end(text, value), kind)


def _end(text: str, node: ast.expr | ast.arg) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _position(text, node.end_lineno, node.end_col_offset)


def _position(text: str, line: int, column: int) -> int:
    return sum(len(each) + 1 for each in text.encode().split(b"\n")[: line - 1]) + column


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
            yield Place(values[0].start_byte, values[0].end_byte, kind)
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
        raise UnknownLanguageError("parameters are added in Python only")
    check_new_name(change.function.rpartition(".")[2], change.name)
    root = syntax_tree(text, language)
    if root is None or root.has_error:
        raise RefusedError("the file does not parse")
    function = _only_function(text, change.function, area or whole_area(text))
    inside = {getattr(each, field, "") for each in ast.walk(function) for field in ("id", "arg", "name")}
    if change.name in inside:
        raise RefusedError(f"`{change.name}` is in use in `{change.function}`")
    plain = [ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in function.decorator_list]
    if strange := [each for each in plain if each not in PLAIN_DECORATORS or "property" in each or each == "setter"]:
        raise RefusedError(f"`@{strange[0]}` decides which parameters `{change.function}` has")
    default = written_in(change.default, language)
    if kind_of_literal(default, language) is LiteralKind.OTHER:
        raise RefusedError(f"{default} is no constant")
    written = f"{change.name}: {change.annotation} = {default}" if change.annotation else f"{change.name}={default}"
    start = _position(text, function.lineno, function.col_offset)
    nodes = [each for each in find_nodes(root, PYTHON, ("parameters",)) if each.start_byte > start]
    splice = _parameter_splice(text.encode(), min(nodes, key=lambda each: each.start_byte), written)
    step = Step(f"add the parameter `{written}` to `{change.function}`", (splice,))
    _check_added(text, splice_text(text, (splice,)), change.name)
    return step


def _only_function(text: str, named: str, area: Area) -> ast.FunctionDef | ast.AsyncFunctionDef:
    wanted = tuple(named.split("."))
    found = [
        node
        for path, node in _walk(ast.parse(text), ())
        if isinstance(node, FUNCTIONS)
        and (*path, node.name)[-len(wanted) :] == wanted
        and area.holds(start := _position(text, node.lineno, node.col_offset), start)
    ]
    if len(found) != 1:
        raise RefusedError(f"`{named}` is defined {len(found)} times")
    return found[0]


def _check_added(text: str, new_text: str, name: str) -> None:
    """RefusedError unless the new text has this one parameter more and nothing else."""
    try:
        before, after = (
            [each.arg for each in ast.walk(ast.parse(source)) if isinstance(each, ast.arg)]
            for source in (text, new_text)
        )
    except SyntaxError as error:
        raise RefusedError("the new text would not parse") from error
    if sorted((*before, name)) != sorted(after):
        raise RefusedError("more than the parameter would change")


def _parameter_splice(raw: bytes, parameters: Node, written: str) -> Splice:
    """At the end, but before `**options`; on a line of its own where the others have one."""
    existing = [each for each in parameters.named_children if each.type != "comment"]
    last = existing[-1] if existing else None
    if last is None:
        return Splice(parameters.start_byte + 1, parameters.start_byte + 1, written)
    first = line_start(raw, last.start_byte)
    indent = raw[first : last.start_byte].decode()
    separator = f"\n{indent}" if not indent.strip() else " "
    if node_text(last).startswith("**"):
        return Splice(last.start_byte, last.start_byte, f"{written},{separator}")
    comma = re.match(rb"\s*,", raw[last.end_byte : parameters.end_byte])
    if comma:
        end = last.end_byte + comma.end()
        return Splice(end, end, f"{separator}{written},")
    return Splice(last.end_byte, last.end_byte, f",{separator}{written}")
