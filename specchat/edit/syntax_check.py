"""Checks that a new text still parses where the old one did, defines what it uses, and calls what can work.

Executes no code.
"""

import ast
import builtins
import inspect
import json
import re
import symtable
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import Parameter, Signature
from itertools import zip_longest
from symtable import SymbolTable

from specchat.edit.source_text import Source
from specchat.errors import BrokenEditError
from specchat.syntax import syntax_diagnostics
from specchat.syntax.names import lost_names, strayed

WORD = re.compile(r"\w+")
MODULE_NAMES = frozenset(("__file__", "__name__", "__doc__", "__path__", "__spec__", "__package__", "__builtins__"))
KNOWN_NAMES = frozenset(dir(builtins)) | MODULE_NAMES
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FILE_MODE = re.compile(r"[rwxa][bt]?\+?|[rwxa]\+[bt]|[bt][rwxa]\+?")  # in the orders in which they are written


def check_names(source: Source, text: str, ignored: str = "") -> None:
    """BrokenEditError for undefined names of Python that the old text did not have, but for words of `ignored`."""
    if source.language != "python":
        return
    if names := set(newly_undefined_names(source.text, text)) - set(WORD.findall(ignored)):
        raise BrokenEditError(f"{source.name}: the new text uses {', '.join(sorted(names))}, which nothing defines")


def check_uses(source: Source, text: str, ignored: str = "") -> None:
    """BrokenEditError for what cannot work, and was not there in the old text.

    In Python that are calls and attributes. Of other languages, names that only the old text defines, and `await` and
    `return` outside of their functions: this is asked last, because the contract puts lost definitions back.
    """
    if source.language == "python":
        problems = list(_broken_uses(source.text, text))
    else:
        before, problems = strayed(source.text, source.language), strayed(text, source.language)
        problems = problems if len(problems) > len(before) else []
        lost = lost_names(source.text, text, source.language)
        problems += [(lost[name], f"nothing defines `{name}`") for name in sorted({*lost} - {*WORD.findall(ignored)})]
    for line, problem in problems:
        raise BrokenEditError(f"{source.name}: line {line} of the new text cannot work: {problem}")


def check_syntax(source: Source, text: str) -> None:
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


def _broken_uses(old: str, new: str) -> Iterator[tuple[int, str]]:
    """The lines of a new text with what cannot work in them and was not in the old one."""
    before, after = _parsed(old), _parsed(new)
    if before is None or after is None:
        return
    known = {problem for _line, problem in _broken_calls(before)}
    yield from (each for each in _broken_calls(after) if each[1] not in known)
    lost = _members(before) - _members(after)
    for node in ast.walk(after):
        if isinstance(node, ast.Attribute) and node.attr in lost and ast.unparse(node.value) == "self":
            yield node.lineno, f"nothing defines `self.{node.attr}` any more"


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _broken_calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    names = [each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    names += [each.name for each in ast.walk(tree) if isinstance(each, (*FUNCTIONS, ast.ClassDef))]
    names += [(each.asname or each.name).partition(".")[0] for each in ast.walk(tree) if isinstance(each, ast.alias)]
    names += [each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)]
    count = Counter(names)
    own = {each.name: _signature(each.args) for each in tree.body
           if isinstance(each, FUNCTIONS) and count[each.name] == 1 and not each.decorator_list}  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name = node.func.id
        signature = own.get(name) or (None if "*" in count or count[name] else _builtin_signature(name))
        problem = _problem(signature, node) if signature else ""
        if problem := problem or ("" if count[name] else _mode_problem(node)):
            yield node.lineno, f"`{ast.unparse(node)}`: {problem}"


def _problem(signature: Signature, call: ast.Call) -> str:
    """Why a call does not fit; arguments given by `*` and `**` may be any."""
    keywords = [each.arg for each in call.keywords]
    is_open = None in keywords or any(isinstance(each, ast.Starred) for each in call.args)
    places = [each for each in call.args if not isinstance(each, ast.Starred)]
    try:
        bind = signature.bind_partial if is_open else signature.bind
        bind(*places, **{each: None for each in keywords if each})
    except TypeError as error:
        return str(error)
    return ""


def _mode_problem(call: ast.Call) -> str:
    """Why `open` raises ValueError: models write the encoding where the mode stands."""
    if ast.unparse(call.func) != "open" or any(isinstance(each, ast.Starred) for each in call.args):
        return ""
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    written = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return "".join(f"{each!r} is no mode of a file" for each in written if not FILE_MODE.fullmatch(each))


def _builtin_signature(name: str) -> Signature | None:
    try:
        return inspect.signature(getattr(builtins, name))
    except (AttributeError, TypeError, ValueError):
        return None


def _signature(arguments: ast.arguments) -> Signature | None:
    """None for parameters that no function can have, such as two of one name."""
    plain, only = [*arguments.posonlyargs, *arguments.args], arguments.kwonlyargs
    optional = plain[len(plain) - len(arguments.defaults) :]
    optional += [each for each, default in zip(only, arguments.kw_defaults, strict=True) if default]
    kinds = (
        (Parameter.POSITIONAL_ONLY, arguments.posonlyargs), (Parameter.POSITIONAL_OR_KEYWORD, arguments.args),
        (Parameter.VAR_POSITIONAL, [arguments.vararg]), (Parameter.KEYWORD_ONLY, only),
        (Parameter.VAR_KEYWORD, [arguments.kwarg]),
    )  # fmt: skip
    found = (
        Parameter(each.arg, kind, default=None if each in optional else Parameter.empty)
        for kind, arguments_of_kind in kinds
        for each in arguments_of_kind
        if each
    )
    with suppress(ValueError):
        return Signature(list(found))
    return None


def _members(tree: ast.Module) -> set[str]:
    """What anything in a text defines that may be an attribute."""
    nodes = list(ast.walk(tree))
    return {each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)} | {
        name for each in nodes for key in ("name", "id", "arg") if isinstance(name := getattr(each, key, None), str)
    }
