"""Renames a name in a Python text: the definition, every use, keyword arguments, `__all__` and documented parameters.

Strings and comments stay as they are otherwise. What the new text means is compared with the old one: every name must
refer to the same definition as before, or the renaming is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from keyword import iskeyword

from tree_sitter import Node

from specchat.edit.refactoring.docstring_names import find_parameter_names
from specchat.edit.refactoring.operations import Rename
from specchat.edit.refactoring.python_keywords import KeywordArguments
from specchat.edit.refactoring.python_members import decorator_names
from specchat.edit.refactoring.python_names import Binding, BoundBy, PythonNames, Scope, ScopeKind, analyse_names
from specchat.edit.refactoring.python_symbols import (
    MemberSymbol,
    NameSymbol,
    PythonFile,
    Symbol,
    find_symbol,
    parse_python,
)
from specchat.edit.refactoring.splices import Area, RefusedError, Splice, Step, count_of, splice_text, whole_area
from specchat.syntax.parse import find_nodes, node_text, syntax_tree

Places = set[tuple[int, int]]  # ranges of bytes
# Builtins that read names from strings or from the running program.
DYNAMIC_BUILTINS = frozenset(("locals", "vars", "eval", "exec"))
ATTRIBUTE_FUNCTIONS = frozenset(("getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller", "object"))
# `X = f("X")`: these take the name of what they make.
NAMING_FUNCTIONS = frozenset(
    ("TypeVar", "ParamSpec", "TypeVarTuple", "NewType", "TypeAliasType", "namedtuple", "NamedTuple", "TypedDict",
     "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "new_class", "make_dataclass")
)  # fmt: skip
NAME_LISTS = frozenset(("__slots__", "__match_args__"))
TYPE_COMMENT = re.compile(r"#\s*type:\s*(?!ignore\b)(?P<type>.*)")


def rename_in_python(text: str, rename: Rename, area: Area | None = None) -> Step:
    """The renaming as changes of the text. RefusedError says why it is not certain."""
    file = parse_python(text)
    check_new_name(rename.old, rename.new)
    symbol = find_symbol(file, rename, area or whole_area(text))
    places = find_places(file, symbol, rename.new)
    splices = tuple(Splice(start, end, rename.new) for start, end in sorted(places))
    new_text = splice_text(text, splices)
    check_same_meaning(file.names, new_text, rename)
    return Step(describe_renaming(symbol, rename, new_text, len(splices)), splices)


def describe_renaming(symbol: Symbol, rename: Rename, new_text: str, count: int) -> str:
    """`rename function `add` to `plus`: 4 places`, and how often the name is left in strings and comments."""
    root = syntax_tree(new_text, "python")
    prose = find_nodes(root, "python", ("comment", "string_content")) if root else []
    left = sum(len(re.findall(rf"(?<!\w){re.escape(rename.old)}(?!\w)", node_text(each))) for each in prose)
    note = f"; {count_of(left, 'mention')} in strings and comments left" if left else ""
    return f"rename {symbol.kind} `{rename.old}` to `{rename.new}`: {count_of(count, 'place')}{note}"


def check_new_name(old: str, new: str) -> None:
    for name in (old, new):
        if not name.isidentifier() or iskeyword(name) or unicodedata.normalize("NFKC", name) != name:
            raise RefusedError(f"`{name}` is not a name in Python")
        if name.startswith("__") or name == "_":
            raise RefusedError(f"`{name}` has a special meaning in Python")
    if old == new:
        raise RefusedError("the new name is the old one")


def find_places(file: PythonFile, symbol: Symbol, new: str) -> Places:
    """Every place that is to be changed, as a range of bytes."""
    if isinstance(symbol, MemberSymbol):
        return _member_places(file, symbol, new)
    _check_fixed_name(file, symbol)
    binding = symbol.binding
    places = _occurrence_places(file.names, binding)
    if BoundBy.PARAMETER in binding.kinds:
        places |= KeywordArguments(file).of_parameter(binding)
        places |= _docstring_places(file, binding)
    if symbol.scope.kind is ScopeKind.MODULE:
        places |= exported_places(file, binding.name)
    return places | _declared_places(binding)


def check_same_meaning(old_names: PythonNames, new_text: str, rename: Rename) -> None:
    """RefusedError unless every name refers to the same definition as before, under its new name."""
    new_names = analyse_names(new_text)
    if new_names is None or len(new_names.occurrences) != len(old_names.occurrences):
        raise RefusedError("the new text would not parse")
    forward: dict[Binding, Binding] = {}
    backward: dict[Binding, Binding] = {}
    for old, new in zip(old_names.occurrences, new_names.occurrences, strict=True):
        before, after = old.binding, new.binding
        is_same = forward.setdefault(before, after) is after and backward.setdefault(after, before) is before
        if not is_same or (before.scope is None) != (after.scope is None):
            raise RefusedError(f"`{rename.new}` is in use where `{rename.old}` is")


def _occurrence_places(names: PythonNames, binding: Binding) -> Places:
    places = Places()
    for each in names.by_binding.get(binding, []):
        parent = each.node.parent
        if each.bound_by is BoundBy.IMPORT and (parent is None or parent.type != "aliased_import"):
            raise RefusedError(f"`{binding.name}` is imported, so it has to be renamed where it is defined")
        places.add((each.start, each.end))
    return places


def _check_fixed_name(file: PythonFile, symbol: NameSymbol) -> None:
    """RefusedError when the program may reach a name by other means than the ones that the tree shows."""
    binding, scope = symbol.binding, symbol.scope
    if binding.is_ambiguous:
        raise RefusedError(f"`{binding.name}` also means something else in a place")
    for node in _function_nodes(binding):
        if "fixture" in decorator_names(node):
            raise RefusedError(f"`{binding.name}` is a fixture, which tests name as a parameter")
    private = rf"_{re.escape(binding.name.lstrip('_'))}__\w"
    if BoundBy.CLASS in binding.kinds and re.search(private, file.text):
        raise RefusedError(f"a private attribute of `{binding.name}` is named with the class")
    dynamic = [
        each
        for each in file.names.occurrences
        if each.binding.scope is None and each.binding.name in DYNAMIC_BUILTINS and _is_called(each.node)
    ]
    if scope.kind is ScopeKind.MODULE:
        is_named = any(_is_whole_string(node, binding.name) for node, _scope in file.names.strings)
        uses_globals = any(
            each.binding.scope is None and each.binding.name == "globals" for each in file.names.occurrences
        )
        if is_named and (dynamic or uses_globals):
            raise RefusedError(f"the program may look up `{binding.name}` by a string")
    elif any(_is_within(each.scope, scope) for each in dynamic):
        raise RefusedError(f"the program may look up `{binding.name}` by a string")
    if any(_mentions(comment, binding.name) for comment in _type_comments(file)):
        raise RefusedError(f"a type comment names `{binding.name}`")


def exported_places(file: PythonFile, name: str) -> Places:
    """The strings in statements about `__all__`."""
    places = Places()
    for node, scope in file.names.strings:
        content = string_content(node)
        if scope.kind is not ScopeKind.MODULE or content is None or node_text(content) != name:
            continue
        statement = node.parent
        while statement is not None and statement.type != "expression_statement":
            statement = statement.parent
        if statement is not None and re.match(r"__all__\b", node_text(statement)):
            places.add((content.start_byte, content.end_byte))
    return places


def _declared_places(binding: Binding) -> Places:
    """The name as a string in `T = TypeVar("T")` and the like."""
    places = Places()
    for _kind, node in binding.bound_by:
        statement = node.parent
        call = statement.child_by_field_name("right") if statement and statement.type == "assignment" else None
        called = call.child_by_field_name("function") if call and call.type == "call" else None
        arguments = call.child_by_field_name("arguments") if call else None
        first = next(iter(arguments.named_children), None) if arguments else None
        if called and first and node_text(called).rpartition(".")[2] in NAMING_FUNCTIONS:
            content = string_content(first) if first.type == "string" else None
            if content is not None and node_text(content) == binding.name:
                places.add((content.start_byte, content.end_byte))
    return places


def _docstring_places(file: PythonFile, binding: Binding) -> Places:
    """Where the docstring of the function documents the parameter; for `__init__` also that of the class."""
    assert binding.scope is not None
    scopes = [binding.scope]
    owner = file.index.method_class(binding.scope)
    if owner is not None and binding.scope.name == "__init__":
        scopes.append(owner.scope)
    places = Places()
    for scope in scopes:
        content = docstring_content(scope.node)
        if content is not None:
            text = node_text(content)
            for position in find_parameter_names(text, binding.name):
                start = content.start_byte + len(text[:position].encode())
                places.add((start, start + len(binding.name.encode())))
    return places


def docstring_content(definition: Node) -> Node | None:
    """The text of the docstring of a function or class, without its quotes."""
    body = definition.child_by_field_name("body")
    statements = [each for each in body.named_children if each.type != "comment"] if body else []
    if not statements or statements[0].type != "expression_statement":
        return None
    strings = statements[0].named_children
    return string_content(strings[0]) if len(strings) == 1 and strings[0].type == "string" else None


def string_content(node: Node) -> Node | None:
    """The content of a string of one piece, without escapes and interpolations."""
    contents = [each for each in node.children if each.type == "string_content"]
    return contents[0] if len(contents) == 1 and len(node.children) == 3 else None


def _member_places(file: PythonFile, symbol: MemberSymbol, new: str) -> Places:
    _check_member(file, symbol, new)
    places = Places()
    for binding in symbol.bindings:
        if binding.is_ambiguous or BoundBy.IMPORT in binding.kinds:
            raise RefusedError(f"`{symbol.name}` also means something else in a place")
        places |= _occurrence_places(file.names, binding)
    for use in file.names.attributes:
        if node_text(use.node) != symbol.name:
            continue
        is_member = file.index.is_member(use, symbol.group)
        if is_member is None:
            line = use.node.start_point.row + 1
            raise RefusedError(f"`{symbol.name}` in line {line} may be an attribute of something else")
        if is_member:
            places.add((use.node.start_byte, use.node.end_byte))
    if not symbol.has_method:
        places |= KeywordArguments(file).of_field(symbol)
    return places


def _check_member(file: PythonFile, symbol: MemberSymbol, new: str) -> None:
    """RefusedError when the new name is taken, or when the program may reach the attribute by a string."""
    related = {other for each in symbol.group for below in each.descendants() for other in below.ancestors()}
    if any(each.defines(new) for each in related):
        raise RefusedError(f"`{new}` is an attribute already")
    for use in file.names.attributes:
        if node_text(use.node) == new and file.index.is_member(use, symbol.group) is not False:
            raise RefusedError(f"`{new}` may be an attribute already")
    for each in symbol.group:
        if any(
            base in node_text(each.scope.node.child_by_field_name("superclasses") or each.scope.node)[:200]
            for base in ("TypedDict",)
        ):
            raise RefusedError(f"`{symbol.name}` is a key of a dictionary")
    for node, _scope in file.names.strings:
        if _is_whole_string(node, symbol.name) and _names_attribute(node):
            raise RefusedError(f"the program may look up `{symbol.name}` by a string")
    if any(_mentions(comment, symbol.name) for comment in _type_comments(file)):
        raise RefusedError(f"a type comment names `{symbol.name}`")


def _names_attribute(node: Node) -> bool:
    """Whether a string is an argument of `getattr` and the like, or stands in `__slots__`."""
    outer = node.parent
    while outer is not None and outer.type not in ("expression_statement", "block", "module"):
        called = outer.child_by_field_name("function") if outer.type == "call" else None
        if called is not None and node_text(called).rpartition(".")[2] in ATTRIBUTE_FUNCTIONS:
            return True
        outer = outer.parent
    return outer is not None and node_text(outer).partition("=")[0].strip() in NAME_LISTS


def _function_nodes(binding: Binding) -> Iterator[Node]:
    for kind, node in binding.bound_by:
        if kind is BoundBy.FUNCTION and node.parent is not None:
            yield node.parent


def _is_called(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "call" and parent.child_by_field_name("function") == node


def _is_within(inner: Scope | None, outer: Scope) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is not None


def _is_whole_string(node: Node, text: str) -> bool:
    content = string_content(node)
    return content is not None and node_text(content) == text


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _type_comments(file: PythonFile) -> list[str]:
    comments = (node_text(each) for each in find_nodes(file.names.root, "python", ("comment",)))
    return [match["type"] for match in map(TYPE_COMMENT.match, comments) if match]
