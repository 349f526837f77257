"""Moves a method out of its class by a rule: the expected result of a refactoring that has no reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from textwrap import dedent

REFACTOR_INSTRUCTION = re.compile(r"# Refactor (\w+)\.(\w+)")


def move_method(instruction: str, before: str) -> str | None:
    """The file with the method that "# Refactor Class.method" names as a function at its end; None when it has none."""
    asked = REFACTOR_INSTRUCTION.match(instruction)
    place = _method_lines(before, *asked.groups()) if asked else None
    if asked is None or place is None:
        return None
    lines = before.splitlines(keepends=True)
    function = dedent("".join(lines[slice(*place)])).rstrip() + "\n"
    kept = "".join(lines[: place[0]] + lines[place[1] :]).rstrip() + "\n"
    name = re.escape(asked[2])
    return re.sub(rf"\bself\.{name}\(\s*(?P<none>\))?", _call_rewriter(asked[2]), f"{kept}\n\n{function}")


def _call_rewriter(name: str) -> Callable[[re.Match[str]], str]:
    def call(found: re.Match[str]) -> str:
        return f"{name}(self)" if found["none"] else f"{name}(self, "

    return call


def _method_lines(before: str, holder: str, method: str) -> tuple[int, int] | None:
    """The lines of a method with its decorators, from 0, the end excluded."""
    for node in ast.walk(ast.parse(before)):
        if isinstance(node, ast.ClassDef) and node.name == holder:
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == method:
                    first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
                    return first - 1, each.end_lineno or first
    return None
