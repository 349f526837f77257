"""What a name in an instruction can mean in a Python text: a binding of a scope, or an attribute of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from specchat.edit.refactoring.operations import NameKind, Rename
from specchat.edit.refactoring.python_members import ClassIndex, PythonClass
from specchat.edit.refactoring.python_names import Binding, BoundBy, PythonNames, Scope, ScopeKind, analyse_names
from specchat.edit.refactoring.splices import Area, RefusedError

MAX_LISTED = 3  # meanings of an ambiguous name in a message


@dataclass(frozen=True)
class PythonFile:
    """A text with its names and classes."""

    text: str
    names: PythonNames

    @cached_property
    def index(self) -> ClassIndex:
        return ClassIndex(self.names)


@dataclass(frozen=True)
class NameSymbol:
    """A name that is bound in a module, function, lambda or comprehension."""

    binding: Binding

    @property
    def kind(self) -> NameKind:
        kinds = self.binding.kinds
        table = {
            BoundBy.PARAMETER: NameKind.PARAMETER, BoundBy.CLASS: NameKind.CLASS, BoundBy.FUNCTION: NameKind.FUNCTION,
            BoundBy.IMPORT: NameKind.IMPORT, BoundBy.TYPE_PARAMETER: NameKind.TYPE,
        }  # fmt: skip
        return next((table[kind] for kind in table if kind in kinds), NameKind.VARIABLE)

    @property
    def scope(self) -> Scope:
        assert self.binding.scope is not None
        return self.binding.scope

    @property
    def owners(self) -> list[tuple[str, ...]]:
        return [scope_path(self.scope)]

    @property
    def line(self) -> int:
        return self.binding.bound_by[0][1].start_point.row + 1

    @property
    def place(self) -> tuple[int, int]:
        node = self.binding.bound_by[0][1]
        return node.start_byte, node.end_byte


@dataclass(frozen=True)
class MemberSymbol:
    """An attribute or method of classes that override each other, or of one class."""

    name: str
    group: tuple[PythonClass, ...]

    @property
    def kind(self) -> NameKind:
        kinds = {kind for each in self.bindings for kind in each.kinds}
        is_class = kinds == {BoundBy.CLASS}
        return NameKind.CLASS if is_class else NameKind.METHOD if self.has_method else NameKind.ATTRIBUTE

    @property
    def bindings(self) -> list[Binding]:
        """The definitions in the bodies of the classes."""
        scopes = (each.scope for each in self.group)
        return [scope.bindings[self.name] for scope in scopes if self.name in scope.bindings]

    @property
    def has_method(self) -> bool:
        return any(BoundBy.FUNCTION in each.kinds for each in self.bindings)

    @property
    def owners(self) -> list[tuple[str, ...]]:
        return [scope_path(each.scope) for each in self.group]

    @property
    def line(self) -> int:
        return self.group[0].scope.node.start_point.row + 1

    @property
    def place(self) -> tuple[int, int]:
        if not self.bindings:
            node = self.group[0].scope.node
            return node.start_byte, node.end_byte
        node = self.bindings[0].bound_by[0][1]
        return node.start_byte, node.end_byte


Symbol = NameSymbol | MemberSymbol


def parse_python(text: str) -> PythonFile:
    """A text with its names; RefusedError for a text that does not parse."""
    names = analyse_names(text)
    if names is None:
        raise RefusedError("the file does not parse")
    return PythonFile(text, names)


def find_symbol(file: PythonFile, rename: Rename, area: Area) -> Symbol:
    """The one thing in an area of a text that a name means; RefusedError when there is none, or several."""
    name, kind, scope = rename.old, rename.kind, rename.scope
    symbols: list[Symbol] = [
        NameSymbol(binding)
        for binding in file.names.bindings_named(name)
        if binding.scope is not None and binding.scope.kind is not ScopeKind.CLASS
    ]
    symbols += [MemberSymbol(name, tuple(group)) for group in file.index.groups(name)]
    symbols = [each for each in symbols if area.holds(*each.place)]
    found = _in_scope(symbols, tuple(scope.split(".")) if scope else ())
    for is_kind in KIND_TESTS[kind]:
        if chosen := [each for each in found if is_kind(each)]:
            found = chosen
            break
    else:
        found = []
    if not found:
        described = " ".join(filter(None, [kind, f"`{name}`", f"in `{scope}`" if scope else ""]))
        raise RefusedError(f"the file defines no {described}" if kind else f"the file does not define {described}")
    if len(found) > 1:
        raise RefusedError(f"`{name}` may be {_list_meanings(found)}")
    return found[0]


def scope_path(scope: Scope | None) -> tuple[str, ...]:
    """("Parser", "feed") for what stands in the method feed of the class Parser."""
    path: list[str] = []
    while scope is not None:
        if scope.name and scope.kind in (ScopeKind.FUNCTION, ScopeKind.CLASS):
            path.append(scope.name)
        scope = scope.parent
    return tuple(reversed(path))


def _in_scope(symbols: Sequence[Symbol], wanted: tuple[str, ...]) -> list[Symbol]:
    """The symbols of a function or class itself; without such, those of the functions inside it."""
    if not wanted:
        return list(symbols)
    count = len(wanted)
    exact = [each for each in symbols if any(owner[-count:] == wanted for owner in each.owners)]
    return exact or [each for each in symbols if any(_contains(owner, wanted) for owner in each.owners)]


def _contains(path: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(path[index : index + len(part)] == part for index in range(len(path)))


def _is_bound_by(*kinds: BoundBy) -> Callable[[Symbol], bool]:
    return lambda symbol: isinstance(symbol, NameSymbol) and bool(symbol.binding.kinds & set(kinds))


def _is_constant(symbol: Symbol) -> bool:
    if isinstance(symbol, MemberSymbol):
        return not symbol.has_method
    return BoundBy.VARIABLE in symbol.binding.kinds and symbol.scope.kind is ScopeKind.MODULE


def _is_method(symbol: Symbol) -> bool:
    return isinstance(symbol, MemberSymbol) and symbol.has_method


def _is_inner_class(symbol: Symbol) -> bool:
    return isinstance(symbol, MemberSymbol) and any(BoundBy.CLASS in each.kinds for each in symbol.bindings)


def _is_member(symbol: Symbol) -> bool:
    return isinstance(symbol, MemberSymbol)


def _is_any(_symbol: Symbol) -> bool:
    return True


# What a word may mean, the strict sense first; a looser one counts where nothing has the strict one.
KIND_TESTS: Mapping[NameKind, tuple[Callable[[Symbol], bool], ...]] = {
    NameKind.ANY: (_is_any,),
    NameKind.FUNCTION: (_is_bound_by(BoundBy.FUNCTION), _is_method),
    NameKind.METHOD: (_is_method, _is_bound_by(BoundBy.FUNCTION)),
    NameKind.CLASS: (_is_bound_by(BoundBy.CLASS), _is_inner_class),
    NameKind.VARIABLE: (_is_bound_by(BoundBy.VARIABLE), _is_bound_by(BoundBy.PARAMETER), _is_constant),
    NameKind.PARAMETER: (_is_bound_by(BoundBy.PARAMETER),),
    NameKind.ATTRIBUTE: (_is_member,),
    NameKind.IMPORT: (_is_bound_by(BoundBy.IMPORT),),
    NameKind.CONSTANT: (_is_constant,),
    NameKind.TYPE: (_is_bound_by(BoundBy.CLASS, BoundBy.TYPE_PARAMETER), _is_bound_by(BoundBy.VARIABLE)),
}


def _list_meanings(symbols: Sequence[Symbol]) -> str:
    meanings = [f"the {each.kind} of line {each.line}" for each in symbols]
    more = len(meanings) - MAX_LISTED
    return " or ".join(meanings[:MAX_LISTED]) + (f" or {more} more" if more > 0 else "")
