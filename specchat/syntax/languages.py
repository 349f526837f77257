"""Which language a text is in, by the name of its file or by its first line, and the grammar of a language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import PurePath

from tree_sitter import Language

TEXT = ""


@dataclass(frozen=True)
class Known:
    """How files of a language are called, and where its grammar is: a package and a function in it."""

    endings: tuple[str, ...]
    package: str
    function: str = "language"
    names: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()


LANGUAGES: Mapping[str, Known] = {
    "python": Known((".py", ".pyi", ".pyw"), "tree_sitter_python", interpreters=("python", "pypy")),
    "javascript": Known((".js", ".mjs", ".cjs", ".jsx"), "tree_sitter_javascript", interpreters=("node", "deno")),
    "typescript": Known((".ts", ".mts", ".cts"), "tree_sitter_typescript", "language_typescript"),
    "tsx": Known((".tsx",), "tree_sitter_typescript", "language_tsx"),
    "json": Known((".json",), "tree_sitter_json"),
    "toml": Known((".toml",), "tree_sitter_toml"),
    "markdown": Known((".md", ".markdown"), "tree_sitter_markdown"),
    "go": Known((".go",), "tree_sitter_go"),
    "rust": Known((".rs",), "tree_sitter_rust"),
    "c": Known((".c", ".h"), "tree_sitter_c"),
    "cpp": Known((".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx"), "tree_sitter_cpp"),
    "java": Known((".java",), "tree_sitter_java"),
    "bash": Known((".sh", ".bash"), "tree_sitter_bash", names=(".bashrc", ".profile"), interpreters=("bash", "sh")),
    "yaml": Known((".yaml", ".yml"), "tree_sitter_yaml"),
    "html": Known((".html", ".htm"), "tree_sitter_html"),
    "css": Known((".css",), "tree_sitter_css"),
}
BY_ENDING = {ending: name for name, known in LANGUAGES.items() for ending in known.endings}
BY_NAME = {file: name for name, known in LANGUAGES.items() for file in known.names}
BY_INTERPRETER = {program: name for name, known in LANGUAGES.items() for program in known.interpreters}
# "#!/usr/bin/env -S python3.12 -u" names python
SHEBANG = re.compile(r"\A#!\s*\S*?(?:\benv\s+(?:-\S+\s+)*)?(?P<program>[a-z]+)[\d.]*(?:\s|\Z)")


def language_of(name: str, text: str = "") -> str:
    """The language of a file, TEXT when it is none of ours.

    "a/b.py" is "python"; so is "tool" with a text that begins with "#!/usr/bin/env python3".
    """
    path = PurePath(name)
    known = BY_ENDING.get(path.suffix.lower()) or BY_NAME.get(path.name)
    if known:
        return known
    found = SHEBANG.match(text.partition("\n")[0])
    return BY_INTERPRETER.get(found["program"], TEXT) if found else TEXT


@cache
def grammar(language: str) -> Language | None:
    """The grammar, imported now; None for text, and for a language whose package is not installed."""
    known = LANGUAGES.get(language)
    if known is None:
        return None
    try:
        package = import_module(known.package)
    except ImportError:
        return None
    make: Callable[[], object] = getattr(package, known.function)
    return Language(make())
