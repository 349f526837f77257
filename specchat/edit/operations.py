"""The operations that a syntax tree can do without a model, as values; as text they are what a user would say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Named = TypeVar("Named")


class NameKind(StrEnum):
    """What an instruction says that a name is."""

    ANY = ""
    FUNCTION = "function"
    METHOD = "method"
    CLASS = "class"
    VARIABLE = "variable"
    PARAMETER = "parameter"
    ATTRIBUTE = "attribute"
    IMPORT = "import"
    CONSTANT = "constant"
    TYPE = "type"


# What a word may mean, the strict sense first; a looser one counts where nothing has the strict one.
SENSES: Mapping[NameKind, Sequence[NameKind]] = {
    NameKind.FUNCTION: (NameKind.FUNCTION, NameKind.METHOD),
    NameKind.CLASS: (NameKind.CLASS, NameKind.TYPE),
    NameKind.TYPE: (NameKind.TYPE, NameKind.CLASS),
    NameKind.VARIABLE: (NameKind.VARIABLE, NameKind.ATTRIBUTE, NameKind.PARAMETER, NameKind.CONSTANT),
    NameKind.CONSTANT: (NameKind.CONSTANT, NameKind.VARIABLE, NameKind.ATTRIBUTE),
    NameKind.ATTRIBUTE: (NameKind.ATTRIBUTE, NameKind.METHOD),
}


def of_kind(found: Sequence[Named], wanted: NameKind, kind_of: Callable[[Named], NameKind]) -> list[Named]:
    """What an instruction means that calls it so; all of it where the instruction says no kind."""
    senses = SENSES.get(wanted, (wanted,)) if wanted else ()
    by_sense = ([each for each in found if kind_of(each) is sense] for sense in senses)
    return next(filter(None, by_sense), []) if wanted else list(found)


class Removable(StrEnum):
    PRINTS = "prints"
    LOGGING = "logging calls"
    COMMENTS = "comments"
    DOCSTRINGS = "docstrings"
    UNUSED_IMPORTS = "unused imports"
    CALLS = "calls"


@dataclass(frozen=True)
class Rename:
    """`scope` is the function or class that the name belongs to ("feed", "Parser.feed"), "" when it is not said."""

    old: str
    new: str
    kind: NameKind = NameKind.ANY
    scope: str = ""

    def __str__(self) -> str:
        return f"rename {self.old} to {self.new}{_within(self.scope)}"


@dataclass(frozen=True)
class Remove:
    """`is_single`: the instruction says one, so there must not be several. `called`: the function, of calls."""

    what: Removable
    scope: str = ""
    is_single: bool = False
    called: str = ""

    def __str__(self) -> str:
        if self.what is Removable.UNUSED_IMPORTS and self.scope:
            return f"remove the unused import {self.scope}"
        return f"remove the {f'{self.called} ' if self.called else ''}{self.what}{_within(self.scope)}"


@dataclass(frozen=True)
class RemoveDefinition:
    """A function, method or class that nothing else mentions."""

    name: str
    kind: NameKind
    scope: str = ""

    def __str__(self) -> str:
        return f"remove the {self.kind} {self.name}{_within(self.scope)}"


@dataclass(frozen=True)
class SortImports:
    def __str__(self) -> str:
        return "sort the imports"


@dataclass(frozen=True)
class SetValue:
    """A new value for a constant or a default, as it is to be written; `old_value` is what the instruction says."""

    name: str
    value: str
    kind: NameKind = NameKind.ANY
    scope: str = ""
    old_value: str = ""

    def __str__(self) -> str:
        old = f" from {self.old_value}" if self.old_value else ""
        return f"change {self.name}{_within(self.scope)}{old} to {self.value}"


@dataclass(frozen=True)
class AddParameter:
    """A new last parameter for a function, with a default."""

    function: str
    name: str
    default: str
    annotation: str = ""

    def __str__(self) -> str:
        return f"add a parameter {self.name} = {self.default} to {self.function}"


@dataclass(frozen=True)
class Move:
    """A definition or constant before or after another one of its module or class ("Parser.feed")."""

    name: str
    anchor: str
    is_before: bool = True

    def __str__(self) -> str:
        return f"move {self.name} {'before' if self.is_before else 'after'} {self.anchor}"


def _within(scope: str) -> str:
    return f" in {scope}" if scope else ""


Operation = Rename | Remove | RemoveDefinition | SortImports | SetValue | AddParameter | Move
