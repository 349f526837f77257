"""Edits of a constant or a comparison operator."""

from __future__ import annotations

import ast
import re
from random import Random

from recipes.edit_example import Edit
from recipes.phrasing import NEW_TEXTS, instruction_phrase
from recipes.snippets import Snippet

OPERATOR = re.compile(r" (<=|>=|==|!=|<|>) ")
FLIPS = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "!=", "!=": "=="}


def change_constant(snippet: Snippet, rng: Random) -> Edit | None:
    places = constant_places(snippet)
    if not places:
        return None
    name, literal = rng.choice(places)
    old = ast.get_source_segment(snippet.text, literal)
    new = new_literal(literal.value, rng)
    if old is None or new is None or new == old or len(old) > 40 or "\n" in old:
        return None
    lines = snippet.lines
    line = lines[literal.lineno - 1]
    lines[literal.lineno - 1] = line[: literal.col_offset] + new + line[literal.end_col_offset :]
    return Edit(
        "constant", instruction_phrase("constant", rng, name=name, old=old, new=new), snippet.text, "".join(lines)
    )


def constant_places(snippet: Snippet) -> list[tuple[str, ast.Constant]]:
    """Names that are given a literal once, with the literal: assignments and defaults."""
    found: list[tuple[str, ast.Constant]] = []
    for node in ast.walk(snippet.tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as literal):
                found.append((name, literal))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant() as literal):
                found.append((name, literal))
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant() as literal):
                found.append((name, literal))
            case ast.FunctionDef(args=arguments):
                placed = [*arguments.posonlyargs, *arguments.args]
                pairs = [
                    *zip(placed[len(placed) - len(arguments.defaults) :], arguments.defaults, strict=True),
                    *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
                ]
                found += [(arg.arg, value) for arg, value in pairs if isinstance(value, ast.Constant)]
    counts: dict[str, int] = {}
    for name, _ in found:
        counts[name] = counts.get(name, 0) + 1
    return [(name, value) for name, value in found if counts[name] == 1 and value.lineno == value.end_lineno]


def new_literal(value: object, rng: Random) -> str | None:
    match value:
        case bool():
            return str(not value)
        case int():
            return str(
                rng.choice([value + 1, value * 2, rng.randint(0, 9), rng.randint(10, 999), rng.randint(1000, 99999)])
            )
        case float():
            return str(round(rng.choice([value * 2, value / 2, rng.random(), rng.uniform(1, 100)]), rng.randint(1, 3)))
        case str():
            return f'"{rng.choice(NEW_TEXTS)}"'
        case None:
            return rng.choice(["0", "1", "True", "False", '""', str(rng.randint(2, 500))])
    return None


def fix_comparison(snippet: Snippet, rng: Random) -> Edit | None:
    """A comparison of the real code, turned round in the input."""
    found = [node for node in ast.walk(snippet.tree) if isinstance(node, ast.Compare) and len(node.ops) == 1]
    sources = [ast.get_source_segment(snippet.text, node) or "" for node in found]
    sources = [source for source in sources if is_reversible_comparison(source) and snippet.text.count(source) == 1]
    if not sources:
        return None
    right = rng.choice(sources)
    wrong = OPERATOR.sub(lambda match: f" {FLIPS[match.group(1)]} ", right)
    before = snippet.text.replace(right, wrong)
    return Edit(
        "fix_comparison", instruction_phrase("fix_comparison", rng, wrong=wrong, right=right), before, snippet.text
    )


def is_reversible_comparison(source: str) -> bool:
    return len(source) < 60 and len(OPERATOR.findall(source)) == 1 and not set(source) & set("`\n")
