"""Pieces of real files that parse on their own, and functions to inspect them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@dataclass(frozen=True)
class Snippet:
    """A piece of a real file that parses by itself."""

    text: str
    tree: ast.Module
    names: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @property
    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]


def snippets_of(text: str, rng: Random, longest: int = 60) -> Iterator[Snippet]:
    """Functions, classes, heads of files and short runs of statements, dedented, up to so many lines."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = text.splitlines(keepends=True)
    for first, last in spans(tree, rng, longest):
        piece = textwrap.dedent("".join(lines[first - 1 : last]))
        snippet = snippet_from(piece)
        if snippet is not None:
            yield snippet


def snippet_from(text: str) -> Snippet | None:
    """The text as a snippet, or nothing if it does not parse, is too odd or would close its own fence."""
    text = text.strip("\n") + "\n"
    if "```" in text or "\t" in text or "\r" in text or not text.isascii() or max(map(len, text.splitlines())) > 140:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return Snippet(text, tree, tuple(dict.fromkeys(IDENTIFIER.findall(text)))) if tree.body else None


def spans(tree: ast.Module, rng: Random, longest: int) -> Iterator[tuple[int, int]]:
    """Line ranges worth taking, first and last line included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and 2 <= last_line(node) - first_line(node) + 1 <= longest:
            yield first_line(node), last_line(node)
    body = tree.body
    for index in range(0, len(body), 4):
        run = body[index : index + rng.randint(2, 8)]
        first = first_line(run[0])
        while len(run) > 1 and last_line(run[-1]) - first >= longest:
            run = run[:-1]
        if 3 <= last_line(run[-1]) - first + 1 <= longest:
            yield first, last_line(run[-1])


def first_line(node: ast.stmt) -> int:
    """The line of the statement or of its first decorator, counted from 1."""
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True)
class Docstring:
    """What a function or class says of itself, and on which lines."""

    name: str
    words: str
    first: int
    last: int


def docstring_of(node: ast.FunctionDef | ast.ClassDef) -> Docstring | None:
    match node.body[0]:
        case ast.Expr(value=ast.Constant(value=str(words))) as expression if len(node.body) > 1:
            return Docstring(node.name, words.strip(), expression.lineno, last_line(expression))
    return None


def docstrings_of(snippet: Snippet) -> list[Docstring]:
    nodes = [node for node in ast.walk(snippet.tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [found for found in map(docstring_of, nodes) if found is not None]


def without_lines(lines: list[str], first: int, last: int) -> str:
    """The text without these lines (counted from 1, both included)."""
    return "".join(lines[: first - 1] + lines[last:])
