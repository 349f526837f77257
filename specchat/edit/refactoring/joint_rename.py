"""Renames a name of a Python module in several files: where it is defined, and where others import it.

A file counts as the one that is imported when the name of the module fits its path. Uses that the imports do not show
are a reason to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tree_sitter import Node

from specchat.edit.refactoring.find_refactoring import Refactoring, Refusal, find_refusal
from specchat.edit.refactoring.operations import Rename
from specchat.edit.refactoring.parse_instruction import parse_instruction
from specchat.edit.refactoring.python_names import PYTHON, Binding, BoundBy
from specchat.edit.refactoring.python_rename import (
    Places,
    check_new_name,
    check_same_meaning,
    describe_renaming,
    exported_places,
    find_places,
)
from specchat.edit.refactoring.python_symbols import NameSymbol, PythonFile, Symbol, find_symbol, parse_python
from specchat.edit.refactoring.splices import RefusedError, Splice, Step, splice_text, whole_area
from specchat.edit.source_text import Source
from specchat.syntax import language_of
from specchat.syntax.parse import find_nodes, node_text

INIT = "__init__"


@dataclass(frozen=True)
class Module:
    """One of the files, with what it imports."""

    source: Source
    file: PythonFile

    @cached_property
    def path(self) -> Path:
        return Path(self.source.name).absolute()

    @cached_property
    def dotted_path(self) -> tuple[str, ...]:
        """("pkg", "a") for pkg/a.py, ("pkg",) for pkg/__init__.py, with all folders above."""
        parts = self.path.with_suffix("").parts
        return parts[:-1] if parts[-1] == INIT else parts

    def imports_from(self, named: str, other: Module) -> bool:
        """Whether the name of a module in an import of this file is the other file."""
        dots = len(named) - len(named.lstrip("."))
        parts = tuple(named.lstrip(".").split(".")) if named.lstrip(".") else ()
        if not dots:
            return bool(parts) and other.dotted_path[-len(parts) :] == parts
        folder = self.path.parents[dots - 1].parts if dots <= len(self.path.parents) else ()
        return other.dotted_path == (*folder, *parts)


def joint_refactorings(sources: Sequence[Source], instruction: str) -> list[Refactoring]:
    """The renaming that an instruction clearly is in several files, one refactoring for each; else none."""
    found = find_joint_refactoring(sources, instruction)
    return found if isinstance(found, list) else []


def find_joint_refactoring(sources: Sequence[Source], instruction: str) -> list[Refactoring] | Refusal | None:
    """As `joint_refactorings`, with the reason when it is a renaming that is not certain; None when it is none."""
    operations = parse_instruction(instruction, sources[0].name)
    if len(sources) < 2 or len(operations) != 1 or not isinstance(operations[0], Rename):
        return None
    try:
        return _rename_jointly(sources, operations[0])
    except RefusedError as refused:
        return Refusal(str(refused))


def _rename_jointly(sources: Sequence[Source], rename: Rename) -> list[Refactoring]:
    if any(language_of(each.name, each.text) != PYTHON for each in sources):
        raise RefusedError("names are known across files in Python only")
    check_new_name(rename.old, rename.new)
    modules = [Module(each, parse_python(each.text)) for each in sources]
    defining, symbol = _find_definition(modules, rename)
    places = {defining.source.name: find_places(defining.file, symbol, rename.new)}
    others = [each for each in modules if each is not defining]
    if isinstance(symbol, NameSymbol) and symbol.scope is defining.file.names.module:
        places |= _imported_places(defining, others, rename)
    else:
        _check_no_uses(others, symbol, rename)
    return [_refactoring(each, places.get(each.source.name, set()), symbol, rename) for each in modules]


def _find_definition(modules: Sequence[Module], rename: Rename) -> tuple[Module, Symbol]:
    """The one file that defines the name, and what it is there."""
    found: list[tuple[Module, Symbol]] = []
    refused: list[RefusedError] = []
    for module in modules:
        try:
            symbol = find_symbol(module.file, rename, whole_area(module.source.text))
        except RefusedError as error:
            refused.append(error)
            continue
        if not isinstance(symbol, NameSymbol) or not symbol.binding.is_only(BoundBy.IMPORT):
            found.append((module, symbol))
    if not found:
        raise refused[0] if refused else RefusedError(f"none of the files defines `{rename.old}`")
    if len(found) > 1 or any("may be" in str(error) for error in refused):
        raise RefusedError(f"several of the files define `{rename.old}`")
    return found[0]


def _imported_places(defining: Module, others: Sequence[Module], rename: Rename) -> dict[str, Places]:
    """The places in the other files, also in those that import the name from one that imports it."""
    exporting, places = [defining], dict[str, Places]()
    is_growing = True
    while is_growing:
        is_growing = False
        for module in others:
            found, is_exporting = _places_in(module, exporting, rename)
            places[module.source.name] = found
            if is_exporting and module not in exporting:
                exporting.append(module)
                is_growing = True
    return places


def _places_in(module: Module, exporting: Sequence[Module], rename: Rename) -> tuple[Places, bool]:
    """The places in one file, and whether others can import the name from it."""
    places, is_exporting = Places(), False
    for statement in find_nodes(module.file.names.root, PYTHON, ("import_from_statement",)):
        named = _module_name(statement)
        is_meant = _is_one_of(exporting, module, named)
        if is_meant and any(child.type == "wildcard_import" for child in statement.named_children):
            raise RefusedError(f"{module.source.name} imports everything from {named}")
        for name, alias in _imported(statement):
            bound = module.file.names.binding_at(alias or name.named_children[0])
            if is_meant and node_text(name) == rename.old:
                places.add((name.start_byte, name.end_byte))
                if alias is None and bound is not None:
                    places |= _places_of(module.file, bound)
                    is_exporting = True
            inner = f"{named.rstrip('.')}.{node_text(name)}" if named.strip(".") else f"{named}{node_text(name)}"
            if bound is not None and _is_one_of(exporting, module, inner):
                places |= _attribute_places(module.file, bound, (), rename.old)
    return places | _places_in_modules(module, exporting, rename), is_exporting


def _places_in_modules(module: Module, exporting: Sequence[Module], rename: Rename) -> Places:
    """`a.old` after `import a`."""
    places = Places()
    for statement in find_nodes(module.file.names.root, PYTHON, ("import_statement",)):
        for dotted, alias in _imported(statement):
            bound = module.file.names.binding_at(alias or dotted.named_children[0])
            if bound is not None and _is_one_of(exporting, module, node_text(dotted)):
                path = () if alias else tuple(node_text(each) for each in dotted.named_children[1:])
                places |= _attribute_places(module.file, bound, path, rename.old)
    return places


def _is_one_of(exporting: Sequence[Module], module: Module, named: str) -> bool:
    return any(module.imports_from(named, each) for each in exporting)


def _module_name(statement: Node) -> str:
    source = statement.child_by_field_name("module_name")
    return node_text(source) if source else ""


def _imported(statement: Node) -> Iterator[tuple[Node, Node | None]]:
    """The names of an import, each with its alias."""
    source = statement.child_by_field_name("module_name")
    for child in statement.named_children:
        if child.type == "aliased_import":
            name, alias = child.child_by_field_name("name"), child.child_by_field_name("alias")
            if name is not None:
                yield name, alias
        elif child.type == "dotted_name" and child != source:
            yield child, None


def _places_of(file: PythonFile, binding: Binding) -> Places:
    """Every occurrence of an imported name that nothing else gives a value."""
    if not binding.is_only(BoundBy.IMPORT) or binding.is_ambiguous:
        raise RefusedError(f"`{binding.name}` also means something else in a file that imports it")
    found = {(each.start, each.end) for each in file.names.by_binding.get(binding, [])}
    return found | exported_places(file, binding.name)


def _attribute_places(file: PythonFile, binding: Binding, path: tuple[str, ...], name: str) -> Places:
    """`name` in `module.name`, where `binding` and the path are the module."""
    places = Places()
    for use in file.names.attributes:
        if node_text(use.node) != name:
            continue
        parts: list[str] = []
        receiver = use.receiver
        while receiver.type == "attribute" and (attribute := receiver.child_by_field_name("attribute")):
            parts.append(node_text(attribute))
            receiver = receiver.child_by_field_name("object") or receiver
        if file.names.binding_at(receiver) is binding and tuple(reversed(parts)) == path:
            places.add((use.node.start_byte, use.node.end_byte))
    return places


def _check_no_uses(others: Sequence[Module], symbol: Symbol, rename: Rename) -> None:
    """RefusedError when another file may use an attribute or a keyword with this name."""
    for module in others:
        names = module.file.names
        uses = [*(each.node for each in names.attributes), *(each.node for each in names.keywords)]
        if any(node_text(each) == rename.old for each in uses):
            raise RefusedError(f"{module.source.name} may use the {symbol.kind} `{rename.old}`")


def _refactoring(module: Module, places: Places, symbol: Symbol, rename: Rename) -> Refactoring:
    splices = tuple(Splice(start, end, rename.new) for start, end in sorted(places))
    new_text = splice_text(module.source.text, splices)
    check_same_meaning(module.file.names, new_text, rename)
    step = Step(describe_renaming(symbol, rename, new_text, len(splices)), splices)
    refactoring = Refactoring(module.source, (step,))
    if refusal := find_refusal(refactoring):
        raise RefusedError(refusal)
    return refactoring
