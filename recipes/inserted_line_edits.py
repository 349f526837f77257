"""Edits that remove prints and comments, which were inserted into real code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from random import Random

from recipes.edit_example import Edit, Maker
from recipes.phrasing import instruction_phrase, print_line
from recipes.snippets import Snippet, docstring_of, last_line


def remove_lines(kind: str, written: Callable[[Snippet, Random], str], marks: tuple[str, ...]) -> Maker:
    """A maker that plants lines at random places of real code and asks to take them out again."""

    def maker(snippet: Snippet, rng: Random) -> Edit | None:
        if any(mark in snippet.text for mark in marks):
            return None
        places = statement_lines(snippet)
        if not places:
            return None
        lines = snippet.lines
        for place in sorted(rng.sample(places, min(len(places), rng.choice([1, 1, 1, 2, 2, 3]))), reverse=True):
            line = lines[place - 1]
            indent = line[: len(line) - len(line.lstrip())]
            lines.insert(place - 1, indent + written(snippet, rng) + "\n")
        return Edit(kind, instruction_phrase(kind, rng), "".join(lines), snippet.text)

    return maker


def statement_lines(snippet: Snippet) -> list[int]:
    """Lines where a statement of a function body starts, so that another may stand before it."""
    places = set()
    for function in snippet.functions:
        first = 1 if docstring_of(function) is not None else 0
        for node in ast.walk(function):
            for statements in (getattr(node, "body", None), getattr(node, "orelse", None)):
                if isinstance(statements, list):
                    own = statements[first:] if node is function else statements
                    places |= {
                        s.lineno for s in own if isinstance(s, ast.stmt) and not getattr(s, "decorator_list", None)
                    }
    lines = snippet.lines
    return sorted(
        p for p in places if not lines[p - 1].lstrip().startswith(("elif", "else", "except", "finally", "@", '"""'))
    )


def remove_print(snippet: Snippet, rng: Random) -> Edit | None:
    real = remove_real_prints(snippet, rng)
    return real or remove_lines("remove_print", print_line, ("print(",))(snippet, rng)


def remove_real_prints(snippet: Snippet, rng: Random) -> Edit | None:
    """Prints that real code holds, each alone on its lines and not alone in its block."""
    doomed: list[ast.Expr] = []
    for node in ast.walk(snippet.tree):
        for statements in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(statements, list):
                prints = [s for s in statements if is_print(s)]
                if prints and len(prints) == len(statements) and not isinstance(node, ast.Module):
                    return None
                doomed += prints
    if not doomed or len(doomed) != snippet.text.count("print("):
        return None
    gone = {number for statement in doomed for number in range(statement.lineno, last_line(statement) + 1)}
    after = "".join(line for number, line in enumerate(snippet.lines, 1) if number not in gone)
    return Edit("remove_print", instruction_phrase("remove_print", rng), snippet.text, after) if after.strip() else None


def is_print(statement: ast.AST) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return True
    return False
