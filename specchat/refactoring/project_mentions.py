"""Who else in a project may use a name of a Python file: other files, and settings that name what they start.

A name that other files reach is renamed with them or not at all.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from specchat.context.file_listing import MAX_FILES
from specchat.errors import InputError
from specchat.refactoring import python_text as py
from specchat.refactoring.language_rules import LanguageRules
from specchat.refactoring.splices import RefusedError
from specchat.regular_file import read_regular_file

MAX_MENTIONING_FILES = 40
PYTHON_SUFFIXES = (".py", ".pyi")
SETTINGS = ("pyproject.toml", "setup.cfg", "setup.py")


def check_mentions_elsewhere(
    files: Sequence[py.PythonText], definitions: Sequence[py.Token], name: str, *, is_member: bool
) -> None:
    """RefusedError when a file that is not among these uses the name, or may use it."""
    path, known = Path(files[0].name).absolute(), {Path(file.name).absolute().resolve() for file in files}
    others = [each for each, _text in files_with(path, PYTHON_SUFFIXES, name) if each.resolve() not in known]
    if len(others) > MAX_MENTIONING_FILES:
        raise RefusedError(f"{len(others)} other files name `{name}`, too many to check; rename it in an editor")
    keys = {(str(each.file.path), *each.leaf.start_pos) for each in definitions}
    for each in others:
        _check_file(each, files, keys, name, is_member=is_member)
    for setting, text in _settings(path):
        if re.search(rf"[\w.]:{re.escape(name)}\b|\.{re.escape(name)}\b", text):
            raise RefusedError(f"{setting} names `{name}`")


def _check_file(
    path: Path, files: Sequence[py.PythonText], keys: set[tuple[str, int, int]], name: str, *, is_member: bool
) -> None:
    file = py.open_reader(path, files[0])
    if file is None:
        raise RefusedError(f"{path.name} names `{name}` and cannot be read")
    for token in file.tokens(name):
        if is_member and py.is_of_protocol(token.leaf):
            raise RefusedError(f"a protocol of {path.name} asks for `{name}`")
        if token.keys & keys:
            raise RefusedError(f"{path.name} uses `{name}`; name both files to rename it in both")
        if not token.keys and (token.is_imported or (is_member and (token.is_attribute or token.is_keyword))):
            raise RefusedError(f"{path.name} may use `{name}` in line {token.line}")
    stems = {each.path.parent.name if each.path.stem == "__init__" else each.path.stem for each in files}
    if py.one_of(sorted(stems)).search(file.text):
        if re.search(rf"from\s+[\w.]*\b(?:{'|'.join(map(re.escape, stems))})\s+import\s+\*", file.text):
            raise RefusedError(f"{path.name} imports everything")
        for leaf in file.strings():
            if py.one_of([name]).search(py.code_of(leaf)):
                raise RefusedError(f"a string in line {leaf.start_pos[0]} of {path.name} names `{name}`")


def check_mentions_of_word(path: Path, name: str) -> None:
    """RefusedError when another file of the project has this word: Python, or settings that name what they start."""
    settings = (Path(setting) for setting, text in _settings(path) if py.one_of([name]).search(text))
    for other in (*(each for each, _text in files_with(path, PYTHON_SUFFIXES, name)), *settings):
        raise RefusedError(f"{other.name} mentions `{name}`")


def check_other_languages(path: Path, rules: LanguageRules, name: str) -> None:
    """RefusedError when another file of the project has a word that this one declares for all to see."""
    for other, text in files_with(path, rules.seen_in or (path.suffix, ".s"), name):
        if not rules.needs_import or py.one_of([path.stem]).search(text):
            raise RefusedError(f"{other.name} may use `{name}`")


def files_with(path: Path, suffixes: tuple[str, ...], word: str) -> Iterator[tuple[Path, str]]:
    """The other files of a file's project that have a word, with their texts; none for a file that is not there."""
    mention, files = py.one_of([word]), py.project_files(py.project_root(path)) if path.is_file() else []
    if files is None:
        raise RefusedError(f"the project has more than {MAX_FILES} files")
    for other in (each for each in files if each.name.endswith(suffixes)):
        if other.resolve() != path.resolve() and mention.search(text := _read(other)):
            yield other, text


def _settings(path: Path) -> list[tuple[str, str]]:
    """The files of a project that name what they start, with their texts."""
    return [(name, _read(py.project_root(path) / name)) for name in SETTINGS] if path.is_file() else []


def _read(path: Path) -> str:
    try:
        return read_regular_file(path, py.MAX_MODULE_BYTES).decode(errors="replace")
    except InputError:
        return ""
