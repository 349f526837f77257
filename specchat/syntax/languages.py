"""The language of a text, by the name of its file or by its first line; its grammar, and tables about languages."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, cast

from tree_sitter import Language

PLAIN_TEXT = ""
NODE_KINDS = Path(__file__).with_name("node_kinds.toml")


@dataclass(frozen=True)
class LanguageInfo:
    suffixes: tuple[str, ...]
    grammar_package: str
    grammar_function: str = "language"
    file_names: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()


LANGUAGES: Mapping[str, LanguageInfo] = {
    "python": LanguageInfo((".py", ".pyi", ".pyw"), "tree_sitter_python", interpreters=("python", "pypy")),
    "javascript": LanguageInfo(
        (".js", ".mjs", ".cjs", ".jsx"), "tree_sitter_javascript", interpreters=("node", "deno")
    ),
    "typescript": LanguageInfo((".ts", ".mts", ".cts"), "tree_sitter_typescript", "language_typescript"),
    "tsx": LanguageInfo((".tsx",), "tree_sitter_typescript", "language_tsx"),
    "json": LanguageInfo((".json",), "tree_sitter_json"),
    "toml": LanguageInfo((".toml",), "tree_sitter_toml"),
    "markdown": LanguageInfo((".md", ".markdown"), "tree_sitter_markdown"),
    "go": LanguageInfo((".go",), "tree_sitter_go"),
    "rust": LanguageInfo((".rs",), "tree_sitter_rust"),
    "c": LanguageInfo((".c", ".h"), "tree_sitter_c"),
    "cpp": LanguageInfo((".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx"), "tree_sitter_cpp"),
    "java": LanguageInfo((".java",), "tree_sitter_java"),
    "bash": LanguageInfo(
        (".sh", ".bash"), "tree_sitter_bash", file_names=(".bashrc", ".profile"), interpreters=("bash", "sh")
    ),
    "yaml": LanguageInfo((".yaml", ".yml"), "tree_sitter_yaml"),
    "html": LanguageInfo((".html", ".htm"), "tree_sitter_html"),
    "css": LanguageInfo((".css",), "tree_sitter_css"),
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
    make_grammar: Callable[[], object] = getattr(import_module(info.grammar_package), info.grammar_function)
    return Language(make_grammar())


@cache
def language_tables(file: Path) -> Mapping[str, Any]:
    """What a file says about languages, by their names. One that `extends` another one has what that one has, too.

    Nested tables are merged, texts are joined, and anything else is replaced.
    """
    tables: dict[str, Any] = {}
    for name, own in tomllib.loads(file.read_text(encoding="utf-8")).items():  # an extended one comes first
        tables[name] = _merged(tables.get(own.pop("extends", ""), {}), own)
    return tables


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in more.items():
        if isinstance(old := base.get(key), dict):
            result[key] = _merged(cast("dict[str, Any]", old), value)
        else:
            result[key] = f"{old}\n{value}" if old and isinstance(value, str) else value
    return result


def node_kinds(table: str, key: str) -> frozenset[str]:
    """The kinds of nodes that have a meaning in a language, or for the statements or names of all."""
    return frozenset(language_tables(NODE_KINDS).get(table, {}).get(key, "").split())
