"""Sorts the imports of a Python text, and removes those that nothing uses.

Imports are sorted where they stand together: by section, `import x` before `from x import y`, then by name, as isort
and Ruff do by default. Statements keep their form and the comments above them. An import that a comment, a doctest or a
fallback needs is not unused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from specchat.edit.refactoring.import_sections import ImportSections, Section
from specchat.edit.refactoring.operations import Remove
from specchat.edit.refactoring.python_names import (
    PYTHON,
    BoundBy,
    Occurrence,
    PythonNames,
    ScopeKind,
    analyse_names,
)
from specchat.edit.refactoring.removals import is_directive, line_end, line_start, remove_statements
from specchat.edit.refactoring.splices import Area, RefusedError, Splice, Step, count_of, splice_text, whole_area
from specchat.syntax.parse import find_nodes, node_text

IMPORTS = ("import_statement", "import_from_statement", "future_import_statement")
ORDER_COMMENT = re.compile(r"#\s*(?:isort|ruff)\s*:\s*(?:skip|off|split|dont|disable)|#\s*isort:", re.IGNORECASE)
KEEP_COMMENT = re.compile(r"#\s*noqa\b(?!:(?!.*\bF401\b))|#\s*pyright:|#\s*pylint:\s*disable", re.IGNORECASE)
DYNAMIC_NAMES = frozenset(("globals", "locals", "vars", "eval", "exec"))
DOCTEST_LINE = re.compile(r"^\s*(?:>>>|\.\.\.) (?P<code>.*)$", re.MULTILINE)


def sort_imports(text: str, sections: ImportSections, area: Area | None = None) -> Step:
    """The sorted imports as changes of the text. RefusedError says why they cannot be sorted with certainty."""
    names = analyse_names(text)
    if names is None:
        raise RefusedError("the file does not parse")
    raw = text.encode()
    splices: list[Splice] = []
    area = area or whole_area(text)
    for statements in _runs(raw, names.root):
        if not area.holds(statements[0].start_byte, statements[-1].end_byte):
            continue
        if splice := _sorted_run(raw, statements, sections):
            splices.append(splice)
    step = Step(f"sort the imports: {count_of(splices, 'group')}", tuple(splices))
    _check_sorted(names.root, step.apply(text))
    return step


def remove_unused_imports(text: str, file_name: str, remove: Remove, area: Area | None = None) -> Step:
    """The removal as changes of the text; the scope of the operation may be the name of one import.

    RefusedError says why it is not certain.
    """
    names = analyse_names(text)
    if names is None:
        raise RefusedError("the file does not parse")
    if file_name.endswith("__init__.py"):
        raise RefusedError("a package's imports are its interface")
    dynamic = [each for each in names.occurrences if each.binding.scope is None and each.binding.name in DYNAMIC_NAMES]
    if dynamic:
        raise RefusedError(f"`{dynamic[0].binding.name}` may use any name")
    area = area or whole_area(text)
    unused = [each for each in _unused_imports(text, names) if area.holds(each.start, each.end)]
    if remove.scope:
        unused = [each for each in unused if each.binding.name == remove.scope]
    if (remove.is_single or remove.scope) and len(unused) != 1:
        raise RefusedError(f"there are {count_of(unused, 'unused import')}")
    splices = tuple(_import_splices(text.encode(), [each.node for each in unused]))
    step = Step(f"remove {count_of(unused, 'unused import')}", splices)
    _check_removed(names, analyse_names(step.apply(text)), unused)
    return step


# Sorting


def _runs(raw: bytes, root: Node) -> Iterator[list[Node]]:
    """Imports that stand together, with only comments directly above one of them between."""
    blocks = {node.parent.id: node.parent for node in find_nodes(root, PYTHON, IMPORTS) if node.parent}
    for block in blocks.values():
        run: list[Node] = []
        for node in block.named_children:
            if node.type in IMPORTS:
                run.append(node)
            elif run and not _is_within_run(raw, node):
                yield run
                run = []
        if run:
            yield run


def _is_within_run(raw: bytes, node: Node) -> bool:
    """Whether a node between imports is a comment on one of them."""
    return node.type == "comment" and (_is_trailing(raw, node) or _is_above_import(raw, node))


def _is_trailing(raw: bytes, comment: Node) -> bool:
    """Whether a comment stands behind code in its line."""
    return comment.type == "comment" and bool(raw[line_start(raw, comment.start_byte) : comment.start_byte].strip())


def _is_above_import(raw: bytes, comment: Node) -> bool:
    """Whether only comments stand between a comment and the next import, and no blank line."""
    following = comment.next_named_sibling
    if _is_trailing(raw, comment) or following is None or following.start_point.row != comment.start_point.row + 1:
        return False
    return following.type in IMPORTS or (following.type == "comment" and _is_above_import(raw, following))


@dataclass(frozen=True)
class _Unit:
    """One import with the comments above it: its lines, sorted within, and its place in the order."""

    start: int
    end: int
    text: str
    section: Section
    key: tuple[object, ...]


def _sorted_run(raw: bytes, statements: Sequence[Node], sections: ImportSections) -> Splice | None:
    units = [_unit(raw, each, sections, is_first=each is statements[0]) for each in statements]
    start, end = units[0].start, units[-1].end
    parts: list[str] = []
    last: _Unit | None = None
    for unit in sorted(units, key=lambda each: (each.section, *each.key)):
        if last is not None and (last.section != unit.section or unit.text.lstrip().startswith("#")):
            parts.append("\n")
        parts.append(unit.text)
        last = unit
    old, new = raw[start:end].decode(), "".join(parts)
    new = new if old.endswith("\n") else new.removesuffix("\n")
    return Splice(start, end, new) if old != new else None


def _unit(raw: bytes, statement: Node, sections: ImportSections, *, is_first: bool) -> _Unit:
    first, last = line_start(raw, statement.start_byte), line_end(raw, statement.end_byte)
    after = raw[statement.end_byte : last].strip()
    if raw[first : statement.start_byte].strip() or (after and not after.startswith(b"#")):
        raise RefusedError(f"line {statement.start_point.row + 1} holds more than an import")
    start = _start_with_comments(raw, statement, first)
    if is_first and start == 0:
        start = first  # what the file begins with is no comment on its first import
    end = min(last + 1, len(raw))
    if ORDER_COMMENT.search(raw[start:end].decode()):
        raise RefusedError(f"a comment in line {statement.start_point.row + 1} is about the order")
    names = _name_splices(raw, statement)
    text = splice_text(
        raw[start:end].decode(), [Splice(each.start - start, each.end - start, each.new) for each in names]
    )
    module = statement.child_by_field_name("module_name")
    named = node_text(module) if module else min(_imported_names(statement), key=_natural_lower).partition(" as ")[0]
    named = "__future__" if statement.type == "future_import_statement" else named
    is_from = statement.type != "import_statement"
    dots = len(named) - len(named.lstrip("."))
    key = (is_from, -dots, _natural(named.lower()), _natural(named), min(map(_natural, _imported_names(statement))))
    return _Unit(start, end, text if text.endswith("\n") else f"{text}\n", sections.section_of(named), key)


def _start_with_comments(raw: bytes, statement: Node, first: int) -> int:
    """The start of the comment lines directly above a statement."""
    above = statement.prev_named_sibling
    while above is not None and above.type == "comment" and not _is_trailing(raw, above) and not is_directive(above):
        if above.end_point.row + 1 != raw[:first].count(b"\n"):
            break
        first, above = line_start(raw, above.start_byte), above.prev_named_sibling
    return first


def _imported_nodes(statement: Node) -> list[Node]:
    module = statement.child_by_field_name("module_name")
    return [
        each for each in statement.named_children if each.type in ("dotted_name", "aliased_import") and each != module
    ]


def _imported_names(statement: Node) -> list[str]:
    return [" ".join(node_text(each).split()) for each in _imported_nodes(statement)] or ["*"]


def _name_splices(raw: bytes, statement: Node) -> list[Splice]:
    """The imported names in order, each in the place that another one had."""
    nodes = _imported_nodes(statement)
    names = [node_text(each) for each in nodes]
    is_from = statement.type != "import_statement"
    ordered = sorted(names, key=_member_key if is_from else _natural_lower)
    if ordered == names:
        return []
    if b"#" in raw[statement.start_byte : statement.end_byte]:
        raise RefusedError(f"the names in line {statement.start_point.row + 1} have comments")
    return [Splice(node.start_byte, node.end_byte, name) for node, name in zip(nodes, ordered, strict=True)]


def _member_key(name: str) -> tuple[object, ...]:
    """Constants first, then classes, then everything else."""
    plain = name.partition(" as ")[0].strip()
    kind = 0 if plain.isupper() and len(plain) > 1 else 1 if plain[:1].isupper() else 2
    return (kind, *_natural_lower(name))


def _natural_lower(name: str) -> tuple[object, ...]:
    return (_natural(name.lower()), _natural(name))


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A key by which x2 stands before x10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in parts)


def _check_sorted(old_root: Node, new_text: str) -> None:
    """RefusedError unless the text has the same imports and, apart from them, the same statements."""
    new_names = analyse_names(new_text)
    if new_names is None or _statements(old_root) != _statements(new_names.root):
        raise RefusedError("more than the order of the imports would change")


def _statements(root: Node) -> tuple[list[tuple[str, str, tuple[str, ...]]], str]:
    """The imports in any order, and the text of everything else."""
    statements = find_nodes(root, PYTHON, IMPORTS)
    imports = sorted((_block_path(each), _module(each), tuple(sorted(_imported_names(each)))) for each in statements)
    rest, done, raw = list[bytes](), 0, root.text or b""
    for each in statements:
        rest.append(raw[done : each.start_byte])
        done = each.end_byte
    lines = [line for line in b"".join([*rest, raw[done:]]).split(b"\n") if line.strip()]
    code = [line for line in lines if not line.strip().startswith(b"#")]
    return imports, b"\n".join(code).decode()


def _module(statement: Node) -> str:
    module = statement.child_by_field_name("module_name")
    return node_text(module) if module else statement.type


def _block_path(statement: Node) -> str:
    return str(statement.start_point.column)


# Unused imports


def _unused_imports(text: str, names: PythonNames) -> list[Occurrence]:
    """The places of imported names that nothing uses."""
    exported = _exported_names(names)
    doctests = "\n".join(match["code"] for match in DOCTEST_LINE.finditer(text))
    comments = "\n".join(node_text(each) for each in find_nodes(names.root, PYTHON, ("comment",)))
    typed = "\n".join(line for line in comments.split("\n") if re.match(r"#\s*type:\s*(?!ignore)", line))
    raw, packages = text.encode(), _imported_packages(names)
    unused: list[Occurrence] = []
    for occurrence in names.occurrences:
        binding = occurrence.binding
        if occurrence.bound_by is not BoundBy.IMPORT or not binding.is_only(BoundBy.IMPORT) or binding.is_ambiguous:
            continue
        is_used = any(each.bound_by is not BoundBy.IMPORT for each in names.by_binding[binding])
        is_module = binding.scope is names.module
        is_named = (
            (is_module and binding.name in exported)
            or _mentions(doctests, binding.name)
            or _mentions(typed, binding.name)
        )
        is_submodule = occurrence.node.end_byte < (occurrence.node.parent or occurrence.node).end_byte
        is_loaded = is_submodule and len(packages[binding.name]) > 1
        if not is_used and not is_named and not is_loaded and not _is_kept(raw, occurrence.node):
            unused.append(occurrence)
    return unused


def _imported_packages(names: PythonNames) -> Mapping[str, set[str]]:
    """The forms in which each package is imported: {"a": {"import a as x", "import a.b"}}.

    `import a.b` also loads a module for those who know `a` by another name.
    """
    packages: dict[str, set[str]] = defaultdict(set)
    for statement in find_nodes(names.root, PYTHON, IMPORTS):
        module = statement.child_by_field_name("module_name")
        for name in [node_text(module)] if module else _imported_names(statement):
            packages[name.partition(".")[0].partition(" ")[0]].add(node_text(statement))
    return packages


def _exported_names(names: PythonNames) -> set[str]:
    """The strings in statements about `__all__`. RefusedError when it is computed."""
    exported: set[str] = set()
    for each in names.occurrences:
        if each.binding.name != "__all__" or each.scope.kind is not ScopeKind.MODULE:
            continue
        statement = each.node
        while statement.parent is not None and statement.parent.type != "module":
            statement = statement.parent
        strings = find_nodes(statement, PYTHON, ("string",))
        if not strings:
            raise RefusedError("`__all__` is computed")
        exported |= {node_text(string).strip("\"'") for string in strings}
    return exported


def _is_kept(raw: bytes, name: Node) -> bool:
    """Whether an import is there on purpose: `x as x`, a comment for a linter, a fallback, `__future__`."""
    parent, statement = name.parent, name
    if parent is not None and parent.type == "aliased_import":
        original = parent.child_by_field_name("name")
        if original is not None and node_text(original).rpartition(".")[2] == node_text(name):
            return True
    while statement.type not in IMPORTS and statement.parent is not None:
        statement = statement.parent
    lines = raw[line_start(raw, statement.start_byte) : line_end(raw, statement.end_byte)].decode()
    if statement.type == "future_import_statement" or KEEP_COMMENT.search(lines):
        return True
    outer = statement.parent
    while outer is not None and outer.type not in ("function_definition", "class_definition", "module"):
        if outer.type == "try_statement":
            return True
        outer = outer.parent
    return False


def _import_splices(raw: bytes, unused: Sequence[Node]) -> Iterator[Splice]:
    """Changes that remove names, and statements of which no name is left."""
    by_statement: dict[int, tuple[Node, list[Node]]] = {}
    for name in unused:
        element = name
        while element.parent is not None and element.parent.type not in IMPORTS:
            element = element.parent
        statement = element.parent
        assert statement is not None
        by_statement.setdefault(statement.id, (statement, []))[1].append(element)
    whole: list[Node] = []
    for statement, removed in by_statement.values():
        kept = [each for each in _imported_nodes(statement) if each not in removed]
        if kept:
            yield from _partial_splices(raw, statement, removed)
        else:
            whole.append(statement)
    yield from remove_statements(raw, whole, PYTHON)


def _partial_splices(raw: bytes, statement: Node, removed: Sequence[Node]) -> Iterator[Splice]:
    """Line by line: the names that are left, or no line when none is."""
    by_row: dict[int, list[Node]] = {}
    for each in _imported_nodes(statement):
        by_row.setdefault(each.start_point.row, []).append(each)
    for nodes in by_row.values():
        kept = [node_text(each) for each in nodes if each not in removed]
        start, end = nodes[0].start_byte, nodes[-1].end_byte
        if len(kept) == len(nodes):
            continue
        if kept:
            yield Splice(start, end, ", ".join(kept))
            continue
        first, last = line_start(raw, start), line_end(raw, end)
        comma = re.match(rb"[ \t]*,", raw[end:last])
        after = raw[end + (comma.end() if comma else 0) : last].strip()
        if not raw[first:start].strip() and (not after or after.startswith(b"#")):
            yield Splice(first, min(last + 1, len(raw)), "")
        else:
            yield Splice(start, end + (comma.end() if comma else 0), "")


def _check_removed(old: PythonNames, new: PythonNames | None, unused: Sequence[Occurrence]) -> None:
    """RefusedError unless every other name has the place and the meaning that it had."""
    removed = {each.start for each in unused}
    before = [each for each in old.occurrences if each.start not in removed]
    if new is None or len(before) != len(new.occurrences):
        raise RefusedError("the new text would not parse")
    pairs = zip(before, new.occurrences, strict=True)
    if any(one.binding.name != other.binding.name or _is_bound(one) != _is_bound(other) for one, other in pairs):
        raise RefusedError("more than the imports would change")


def _is_bound(occurrence: Occurrence) -> bool:
    return occurrence.binding.scope is not None


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
