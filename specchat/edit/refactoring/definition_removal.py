"""Removes a function, method or class of Python that nothing else mentions, in its file or in the project.

With its decorators and the comment right above it. What something may still reach, by whatever way, is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from tree_sitter import Node

from specchat.edit.refactoring.operations import NameKind, RemoveDefinition
from specchat.edit.refactoring.project_mentions import check_mentions_of_word
from specchat.edit.refactoring.python_text import one_of
from specchat.edit.refactoring.removals import is_directive, node_of, only_definition, parsed, remove_statements
from specchat.edit.refactoring.splices import RefusedError, Step, UnknownLanguageError
from specchat.syntax.definitions import Definition
from specchat.syntax.parse import ancestors, node_text

PYTHON = "python"
KINDS = {NameKind.FUNCTION: "function", NameKind.METHOD: "function", NameKind.CLASS: "class"}
DYNAMIC = re.compile(r"\b(?:getattr|globals|locals|vars|eval|exec|__dict__|__getattr__|__all__)\b")
FUNCTION, CLASS = "function_definition", "class_definition"


def remove_definition(text: str, language: str, remove: RemoveDefinition, path: Path) -> Step:
    """RefusedError says why it is not certain."""
    if language != PYTHON:
        raise UnknownLanguageError("only definitions of Python are known")
    wanted = f"{remove.scope}.{remove.name}" if remove.scope else remove.name
    root, definition = parsed(text, language), only_definition(text, language, wanted, KINDS[remove.kind])
    _check_unreachable(text, definition)
    check_mentions_of_word(path, definition.name)
    outermost = node_of(root, definition)
    _check_bases(outermost, definition.name)
    splices = remove_statements(text.encode(), [*_comments_above(outermost), outermost], PYTHON)
    return Step(f"remove {definition.kind} `{definition.qualified_name}`", tuple(splices))


def _check_unreachable(text: str, definition: Definition) -> None:
    """Nothing outside the definition has its name or makes names."""
    if definition.name.startswith("__"):
        raise RefusedError(f"Python calls `{definition.name}` by itself")
    mention = one_of([definition.name])
    for number, line in enumerate(text.split("\n"), start=1):
        if definition.first_line <= number <= definition.last_line:
            continue
        if mention.search(line):
            raise RefusedError(f"line {number} mentions `{definition.name}`")
        if DYNAMIC.search(line):
            raise RefusedError(f"line {number} may reach `{definition.name}` by its name")


def _check_bases(node: Node, name: str) -> None:
    """Of the class around a method: a base may call it."""
    outer = next((each for each in ancestors(node) if each.type in (CLASS, FUNCTION)), None)
    bases = outer.child_by_field_name("superclasses") if outer else None
    owner = outer.child_by_field_name("name") if outer else None
    if bases and bases.named_children:
        raise RefusedError(f"a base of `{node_text(owner) if owner else ''}` may use `{name}`")


def _comments_above(node: Node) -> list[Node]:
    """The comments in the lines right above, which are about it."""
    found = list[Node]()
    row, above = node.start_point.row, node.prev_sibling
    while above is not None and above.type == "comment" and above.end_point.row == row - 1:
        is_alone = above.prev_sibling is None or above.prev_sibling.end_point.row < above.start_point.row
        if not is_alone or above.start_point.column != node.start_point.column or is_directive(above):
            break
        found.insert(0, above)
        row, above = above.start_point.row, above.prev_sibling
    return found
