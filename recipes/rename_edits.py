"""Edits that rename one name, or two, everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from random import Random

from recipes.edit_example import Edit, Maker
from recipes.phrasing import instruction_phrase, new_name
from recipes.snippets import Snippet

KEYWORD_LIKE = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__) | {
    "self",
    "cls",
    "_",
}


def rename(kind: str, word: str, candidates: Callable[[Snippet], list[str]]) -> Maker:
    """A maker that renames one of these names everywhere it stands."""

    def maker(snippet: Snippet, rng: Random) -> Edit | None:
        names = [name for name in candidates(snippet) if len(name) > 1 or rng.random() < 0.3]
        names = [name for name in names if is_plain_identifier(snippet, name)]
        if not names:
            return None
        old = rng.choice(names)
        new = new_name(old, snippet.names, rng, is_class=kind == "rename_class")
        return Edit(
            kind,
            instruction_phrase("rename", rng, old=old, new=new, what=word),
            snippet.text,
            replaced(snippet.text, old, new),
        )

    return maker


def two_renames(snippet: Snippet, rng: Random) -> Edit | None:
    names = [name for name in (*local_names(snippet), *parameter_names(snippet)) if is_plain_identifier(snippet, name)]
    if len(names) < 2:
        return None
    first, second = rng.sample(names, 2)
    one, two = new_name(first, snippet.names, rng), new_name(second, snippet.names, rng)
    if one == two:
        return None
    after = replaced(replaced(snippet.text, first, one), second, two)
    return Edit(
        "two_renames",
        instruction_phrase("two_renames", rng, old=first, new=one, old2=second, new2=two),
        snippet.text,
        after,
    )


def occurrences(text: str, name: str) -> int:
    return len(re.findall(rf"(?<![\w]){re.escape(name)}(?![\w])", text))


def replaced(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w]){re.escape(old)}(?![\w])", lambda _: new, text)


def is_plain_identifier(snippet: Snippet, name: str) -> bool:
    """Whether every place where the word stands is the name itself: no string, no comment, no attribute."""
    if name in KEYWORD_LIKE or name.startswith("__"):
        return False
    return occurrences(snippet.text, name) == sum(mentions(node, name) for node in ast.walk(snippet.tree))


def mentions(node: ast.AST, name: str) -> int:
    match node:
        case ast.Name(id=found) | ast.arg(arg=found) | ast.FunctionDef(name=found) | ast.ClassDef(name=found):
            return int(found == name)
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=found):
            return int(found == name)
    return 0


def local_names(snippet: Snippet) -> list[str]:
    stored = (n.id for n in ast.walk(snippet.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    parameters = set(parameter_names(snippet))
    return [name for name in dict.fromkeys(stored) if name not in parameters]


def parameter_names(snippet: Snippet) -> list[str]:
    return list(dict.fromkeys(node.arg for node in ast.walk(snippet.tree) if isinstance(node, ast.arg)))


def function_names(snippet: Snippet) -> list[str]:
    return list(dict.fromkeys(function.name for function in snippet.functions))


def class_names(snippet: Snippet) -> list[str]:
    return [node.name for node in ast.walk(snippet.tree) if isinstance(node, ast.ClassDef)]
