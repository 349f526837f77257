"""Names that a Python text uses and nothing defines: what an edit breaks although the text still parses."""

import builtins
import symtable
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from symtable import SymbolTable

MODULE_NAMES = frozenset(("__file__", "__name__", "__doc__", "__path__", "__spec__", "__package__", "__builtins__"))
KNOWN_NAMES = frozenset(dir(builtins)) | MODULE_NAMES


@dataclass(frozen=True)
class GlobalNames:
    """The global names that a text defines, and those that it only uses."""

    defined: frozenset[str]
    undefined: frozenset[str]


def newly_undefined_names(old: str, new: str) -> list[str]:
    """The names that the new text uses, nothing defines, and the old text did not leave undefined, sorted.

    If the old text has undefined names itself, it is a part of something: then only names that it defined count.
    """
    before, after = global_names(old), global_names(new)
    if before is None or after is None:
        return []
    missing = after.undefined - before.undefined
    return sorted(missing & before.defined if before.undefined else missing)


def global_names(text: str) -> GlobalNames | None:
    """None for a text that is not Python, or whose names cannot be known: it imports all names of a module."""
    try:
        with warnings.catch_warnings(action="ignore"):
            module = symtable.symtable(text, "text", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    tables = list(_all_tables(module))
    if any(symbol.get_name() == "*" for symbol in module.get_symbols()) or "import *" in text:
        return None
    defined = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if (table is module or symbol.is_declared_global())
        and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())
    }
    used = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (table is module or symbol.is_global())
    }
    return GlobalNames(frozenset(defined), frozenset(used - defined - KNOWN_NAMES))


def _all_tables(table: SymbolTable) -> Iterator[SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _all_tables(child)
