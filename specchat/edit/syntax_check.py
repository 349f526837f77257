"""Checks that a new text still parses where the old one did and defines what it uses. Executes no code.

Runs the checks of plugins, too.
"""

import builtins
import json
import re
import symtable
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath
from symtable import SymbolTable

from specchat.edit.python_calls import broken_uses
from specchat.edit.source_text import Source
from specchat.errors import BrokenEditError, PluginError
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.extension import Extension
from specchat.syntax import syntax_diagnostics

WORD = re.compile(r"\w+")
MODULE_NAMES = frozenset(("__file__", "__name__", "__doc__", "__path__", "__spec__", "__package__", "__builtins__"))
KNOWN_NAMES = frozenset(dir(builtins)) | MODULE_NAMES


def check_syntax(source: Source, text: str) -> None:
    """BrokenEditError for syntax errors that the old text did not have. Languages without a parser pass."""
    check_parses(source, text)
    if check := find_extensions("edit_checks").get(PurePath(source.name).suffix):
        _run_plugin_check(check, source, text)


def check_names(source: Source, text: str, ignored: str = "") -> None:
    """BrokenEditError for undefined names that the old text did not have; names are known of Python only.

    The words of `ignored` may be undefined.
    """
    if source.language != "python":
        return
    if names := set(newly_undefined_names(source.text, text)) - set(WORD.findall(ignored)):
        raise BrokenEditError(f"{source.name}: the new text uses {', '.join(sorted(names))}, which nothing defines")


def check_uses(source: Source, text: str) -> None:
    """BrokenEditError for a call or an attribute of Python that cannot work, and that the old text did not have."""
    if source.language != "python":
        return
    for line, problem in broken_uses(source.text, text):
        raise BrokenEditError(f"{source.name}: line {line} of the new text cannot work: {problem}")


def check_parses(source: Source, text: str) -> None:
    """BrokenEditError for syntax errors that the old text did not have: all that can be asked of a part of an edit."""
    language = source.language
    parse = PARSERS.get(language)
    if parse and not _parser_error(parse, source.text):
        error = _parser_error(parse, text)
    else:
        error = _new_tree_sitter_error(language, source, text)
    if error:
        raise BrokenEditError(f"{source.name}: the new text does not parse: {error}")


def parses(text: str, language: str) -> bool | None:
    """Whether a text has no syntax error; None for a language without a parser."""
    if language in PARSERS:
        return not _parser_error(PARSERS[language], text)
    diagnostics = syntax_diagnostics(text, language)
    return None if diagnostics is None else not diagnostics


def _run_plugin_check(check: Extension, source: Source, text: str) -> None:
    """Run a plugin's check. A check that fails itself only prints a warning."""
    try:
        problem = check.call(source.text, text)
    except PluginError as error:
        print_warning(str(error))
        return
    if problem:
        raise BrokenEditError(f"{source.name}: the new text fails the check of {check.plugin_name}: {problem}")


def _parse_python(text: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        compile(text, "new text", "exec", dont_inherit=True)


PARSERS: Mapping[str, Callable[[str], object]] = {"python": _parse_python, "json": json.loads, "toml": tomllib.loads}


def _parser_error(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def _new_tree_sitter_error(language: str, source: Source, text: str) -> str:
    """tree-sitter recovers after errors, so they are counted; returns the first new one."""
    old, new = syntax_diagnostics(source.text, language), syntax_diagnostics(text, language)
    if old is None or new is None or len(new) <= len(old):
        return ""
    return str(next(error for error, old_error in zip_longest(new, old) if error != old_error))


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
