"""Collect the product's own text: every text of `specchat/` that can reach a person, in one catalogue.

`python -m tools.collect_texts` writes `specchat/texts/en.json`: each text, and the first file that has it. With a
language, as in `python -m tools.collect_texts de`, it writes `specchat/texts/de.json` from the texts of today: it keeps
their translations, and leaves "" where one is missing.

An f-string is a template with named places. A text is what has two words, outside of docstrings, comparisons, keys,
patterns and what a model reads; words alone are names more often than texts. The docstring of a command is its help.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import specchat
from specchat.own_text import COLUMNS

PACKAGE = Path(specchat.__file__).parent
CATALOGUE = PACKAGE / "texts" / "en.json"
TEXT_TABLES = [
    PACKAGE / name
    for name in (
        "cli/commands.toml",
        "cli/demo.toml",
        "cli/plugins.toml",
        "drafters/eagle/mtp_names.toml",
        "profile/drafter_names.toml",
        "profile/keys.toml",
        "tui/keys_screen.toml",
    )
]
WORDS = re.compile(r"[^\W\d_]{2,}\W+(?:[\w'-]+\W+)*[^\W\d_]{2,}|[^\W\d_]{2,} ?\{\w+\}|\{\w+\} ?[^\W\d_]{3,}")
BETWEEN_TEXTS = re.compile(r"^[ ;:,·]+|[;:,·]? +$")  # at the ends of a text, where it is joined with others
PLACE = re.compile(r"\{[a-z_]+\}")  # in a text that `format` fills
PATTERN = re.compile(r"\(\?[:P<=!]|\\[sbdSwW]|^You are |^Answer with")  # for a program or a model
CODE = re.compile(
    r"^[\w.:/\\<>|=+*?()\[\]{}^$%-]+$|^(?:import|from|def|class|SELECT|CREATE|INSERT|UPDATE|DELETE|PRAGMA) "
)
FOR_MODELS = (
    "app/agent/instructions.py", "app/agent/tool_schemas.py", "chat/prompt.py", "embedded/", "text/", "syntax/",
    "forward/", "history/", "refactoring/python_text.py", "chat/tool_prompt.py", "app/agent/change_tools.py",
    "app/agent/read_tools.py", "edit/asked_changes.py", "edit/parse_instruction.py",
)  # fmt: skip
SLASH_COMMANDS = "app/commands.toml"
FROM_CLICK = "Show this message and exit.", "Show the version and exit.", "Got unexpected extra argument"
NOT_FOR_PEOPLE = {
    "compile", "getLogger", "debug", "info", "warning", "exception", "execute", "executemany", "import_module",
    "sub", "match", "fullmatch", "search", "finditer", "split", "partition", "rpartition", "removeprefix", "startswith",
    "removesuffix", "endswith", "replace", "strip", "lstrip", "rstrip", "encode", "TypeVar", "NewType", "cast", "run",
    "query_one", "query", "get", "setattr", "getattr", "hasattr", "Popen", "on", "set_class", "has_class", "log",
}  # fmt: skip


def texts_of(tree: ast.Module) -> Iterator[str]:
    """The texts of a file, in their order."""
    skipped = set[ast.AST](_not_for_people(tree))
    commands = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_command(node)]
    for node in commands:
        yield from help_paragraphs(ast.get_docstring(node) or "")
    yield from _texts_below(tree, skipped)


def help_paragraphs(text: str) -> list[str]:
    """The parts of a help that are wrapped and translated each for itself; lines that are kept apart are one each."""
    parts = (part for part in inspect.cleandoc(text).split("\n\n") if part.strip())
    lines = (each for part in parts for each in (part.split("\n") if "\b" in part else [" ".join(part.split())]))
    return [each for line in lines for each in columns(line) if is_text(each)]


def _texts_below(node: ast.AST, skipped: set[ast.AST]) -> Iterator[str]:
    if node in skipped:
        return
    if isinstance(node, ast.JoinedStr):
        yield from filter(is_text, columns(template(node)))
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                yield from _texts_below(each.value, skipped)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _plain_texts(node.value)
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts_below(child, skipped)


def _plain_texts(value: str) -> Iterator[str]:
    yield from filter(is_text, columns(value if PLACE.search(value) else _escaped(value)))


def _texts_in(value: object) -> Iterator[str]:
    """The texts of a table of TOML, without its keys."""
    if isinstance(value, str):
        yield from _plain_texts(value)
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)


def columns(text: str) -> list[str]:
    return [BETWEEN_TEXTS.sub("", each) for each in COLUMNS.split(text)[::2]]


def is_text(text: str) -> bool:
    return bool(WORDS.search(text)) and not CODE.search(text.strip()) and not PATTERN.search(text)


def template(node: ast.JoinedStr) -> str:
    """The text with a named place for each value; a name that comes again has a number."""
    parts, names = list[str](), list[str]()
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts.append(_escaped(str(value.value)))
        elif isinstance(value, ast.FormattedValue):
            name = _place_name(value.value)
            names.append(name)
            parts.append(f"{{{name}{names.count(name) if names.count(name) > 1 else ''}}}")
    return "".join(parts)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _place_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_") or "value"
        case ast.Subscript(slice=ast.Constant(value=str(name))) if name.isidentifier():
            return name
        case ast.Call(func=function):
            return _name(function).strip("_") or "value"
        case ast.IfExp():
            return "choice"
        case _:
            return "value"


def _not_for_people(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.body:
                first = node.body[0]
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    yield first
            case ast.Compare() | ast.Subscript() | ast.Import() | ast.ImportFrom() | ast.arguments():
                yield from ast.walk(node)
            case ast.Call() if _name(node.func) in NOT_FOR_PEOPLE:
                yield from node.args
            case ast.Dict(keys=keys):
                yield from filter(None, keys)
            case ast.AnnAssign(annotation=annotation):
                yield annotation
            case ast.FunctionDef(returns=returns) if returns:
                yield returns
            case _:
                pass


def _is_command(function: ast.FunctionDef) -> bool:
    names = (_name(each.func if isinstance(each, ast.Call) else each) for each in function.decorator_list)
    return any(name in ("command", "group") for name in names)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def collect(files: Iterable[Path] = ()) -> dict[str, str]:
    """Each text, and the first file that has it."""
    found = {str(each): "click" for each in FROM_CLICK}
    for path in sorted(files or PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(FOR_MODELS):
            for text in texts_of(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(text, place)
    for text in _texts_of_slash_commands() if not files else ():
        found.setdefault(text, SLASH_COMMANDS)
    for path in () if files else TEXT_TABLES:
        for text in _texts_in(tomllib.loads(path.read_text(encoding="utf-8"))):
            found.setdefault(text, path.relative_to(PACKAGE).as_posix())
    return found


def _texts_of_slash_commands() -> Iterator[str]:
    tables = tomllib.loads((PACKAGE / SLASH_COMMANDS).read_text(encoding="utf-8"))
    entries = (each for name in ("commands", "file_commands", "screen_commands") for each in tables[name].values())
    texts = (each.get(key, "") for each in entries for key in ("arguments", "help"))
    return filter(is_text, chain.from_iterable(map(columns, texts)))


def translation(texts: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    return {text: before.get(text, "") for text in texts}


def as_json(texts: Mapping[str, str]) -> str:
    return json.dumps(texts, ensure_ascii=False, indent=0) + "\n"


def main(arguments: list[str]) -> None:
    texts = collect()
    CATALOGUE.write_text(as_json(texts), encoding="utf-8")
    for language in arguments:
        path = CATALOGUE.with_name(f"{language}.json")
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(as_json(translation(texts, before)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
