"""The language of a text, by the name of its file or by its first line, and the grammar of a language."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import PurePath

from tree_sitter import Language

PLAIN_TEXT = ""


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
