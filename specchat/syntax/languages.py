"""The language of a text, by the name of its file or by its first line; its grammar, and tables about languages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import PurePath
from typing import Any, cast

from tree_sitter import Language

from specchat.own_tables import own_tables

PLAIN_TEXT = ""


@cache
def language_tables(module_file: str) -> Mapping[str, Any]:
    """What the file beside a module says, by the names of its tables, mostly of languages.

    One that `extends` another one has what that one has, too: nested tables are merged, texts are joined, and anything
    else is replaced.
    """
    tables: dict[str, Any] = {}
    for name, own in own_tables(module_file).items():  # an extended one comes first
        more = {key: value for key, value in own.items() if key != "extends"}
        tables[name] = _merged(tables.get(own.get("extends", ""), {}), more)
    return tables


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in more.items():
        if isinstance(old := base.get(key), dict):
            result[key] = _merged(cast("dict[str, Any]", old), value)
        else:
            result[key] = f"{old}\n{value}" if old and isinstance(value, str) else value
    return result


@dataclass(frozen=True)
class LanguageInfo:
    suffixes: tuple[str, ...]
    file_names: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    grammar: tuple[str, ...] = ()


TABLES = language_tables(__file__)
LANGUAGES: Mapping[str, LanguageInfo] = {
    name: LanguageInfo(**{key: tuple(words.split()) for key, words in known.items()})
    for name, known in TABLES["files"].items()
}
LANGUAGE_BY_SUFFIX = {suffix: name for name, known in LANGUAGES.items() for suffix in known.suffixes}
LANGUAGE_BY_FILE_NAME = {file: name for name, known in LANGUAGES.items() for file in known.file_names}
LANGUAGE_BY_INTERPRETER = {program: name for name, known in LANGUAGES.items() for program in known.interpreters}
# the program of "#!/usr/bin/env -S python3.12 -u" is python
SHEBANG = re.compile(r"\A#!\s*\S*?(?:\benv\s+(?:-\S+\s+)*)?(?P<program>[a-z]+)[\d.]*(?:\s|\Z)")


def language_of(name: str, text: str = "") -> str:
    """The language of a file; PLAIN_TEXT when it is unknown.

    "a/b.py" is "python"; so is "tool" with a text that begins with "#!/usr/bin/env python3".
    """
    path = PurePath(name)
    known = LANGUAGE_BY_SUFFIX.get(path.suffix.lower()) or LANGUAGE_BY_FILE_NAME.get(path.name)
    if known:
        return known
    shebang = SHEBANG.match(text.partition("\n")[0])
    return LANGUAGE_BY_INTERPRETER.get(shebang["program"], PLAIN_TEXT) if shebang else PLAIN_TEXT


@cache
def load_grammar(language: str) -> Language | None:
    info = LANGUAGES.get(language)
    if info is None:
        return None
    package, function = info.grammar or (f"tree_sitter_{language}", "language")
    make_grammar: Callable[[], object] = getattr(import_module(package), function)
    return Language(make_grammar())


def node_kinds(table: str, key: str) -> frozenset[str]:
    """The kinds of nodes that have a meaning in a language, or for the statements or names of all."""
    return frozenset(TABLES.get(table, {}).get(key, "").split())
