"""Calls and attributes in a text of Python that cannot work, seen without running it.

open(path, "r", mode="r")      a builtin whose signature is known, or a function of the file, takes no such arguments
self.limt                      a class without bases that has no such attribute
"""

from __future__ import annotations

import ast
import builtins
import inspect
import warnings
from collections import Counter
from collections.abc import Iterator
from inspect import Parameter, Signature

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def broken_uses(old: str, new: str) -> Iterator[tuple[int, str]]:
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
        if signature and (problem := _problem(signature, node)):
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


def _builtin_signature(name: str) -> Signature | None:
    try:
        return inspect.signature(getattr(builtins, name))
    except (AttributeError, TypeError, ValueError):
        return None


def _signature(arguments: ast.arguments) -> Signature:
    plain = [*arguments.posonlyargs, *arguments.args]
    first_default = len(plain) - len(arguments.defaults)
    found = [
        Parameter(
            each.arg,
            Parameter.POSITIONAL_ONLY if number < len(arguments.posonlyargs) else Parameter.POSITIONAL_OR_KEYWORD,
            default=None if number >= first_default else Parameter.empty,
        )
        for number, each in enumerate(plain)
    ]
    if arguments.vararg:
        found.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(Parameter(each.arg, Parameter.KEYWORD_ONLY, default=None if default else Parameter.empty))
    if arguments.kwarg:
        found.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(found)


def _members(tree: ast.Module) -> set[str]:
    """What anything in a text defines that may be an attribute."""
    nodes = list(ast.walk(tree))
    return {each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)} | {
        name for each in nodes for key in ("name", "id", "arg") if isinstance(name := getattr(each, key, None), str)
    }
