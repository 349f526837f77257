"""Checks that a new text still parses where the old one did and defines what it uses. Executes no code.

Runs the checks of plugins, too.
"""

import json
import re
import tomllib
import warnings
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import PurePath

from specchat.edit.source_text import Source
from specchat.edit.undefined_names import newly_undefined_names
from specchat.errors import BrokenEditError, PluginError
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.extension import Extension
from specchat.syntax import language_of, syntax_diagnostics

WORD = re.compile(r"\w+")


def check_syntax(source: Source, text: str) -> None:
    """BrokenEditError for syntax errors that the old text did not have. Languages without a parser pass."""
    check_parses(source, text)
    if check := find_extensions("edit_checks").get(PurePath(source.name).suffix):
        _run_plugin_check(check, source, text)


def check_names(source: Source, text: str, ignored: str = "") -> None:
    """BrokenEditError for undefined names that the old text did not have; names are known of Python only.

    The words of `ignored` may be undefined.
    """
    if language_of(source.name, source.text) != "python":
        return
    if names := set(newly_undefined_names(source.text, text)) - set(WORD.findall(ignored)):
        raise BrokenEditError(f"{source.name}: the new text uses {', '.join(sorted(names))}, which nothing defines")


def check_parses(source: Source, text: str) -> None:
    """BrokenEditError for syntax errors that the old text did not have: all that can be asked of a part of an edit."""
    language = language_of(source.name, source.text)
    parse = PARSERS.get(language)
    if parse and not _parser_error(parse, source.text):
        error = _parser_error(parse, text)
    else:
        error = _new_tree_sitter_error(language, source, text)
    if error:
        raise BrokenEditError(f"{source.name}: the new text does not parse: {error}")


def parses(text: str, language: str) -> bool | None:
    """Whether a text has no syntax error; None for a language without a parser."""
    if language in PARSERS:
        return not _parser_error(PARSERS[language], text)
    diagnostics = syntax_diagnostics(text, language)
    return None if diagnostics is None else not diagnostics


def _run_plugin_check(check: Extension, source: Source, text: str) -> None:
    """Run a plugin's check. A check that fails itself only prints a warning."""
    try:
        problem = check.call(source.text, text)
    except PluginError as error:
        print_warning(str(error))
        return
    if problem:
        raise BrokenEditError(f"{source.name}: the new text fails the check of {check.plugin_name}: {problem}")


def _parse_python(text: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        compile(text, "new text", "exec", dont_inherit=True)


PARSERS: Mapping[str, Callable[[str], object]] = {"python": _parse_python, "json": json.loads, "toml": tomllib.loads}


def _parser_error(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def _new_tree_sitter_error(language: str, source: Source, text: str) -> str:
    """tree-sitter recovers after errors, so they are counted; returns the first new one."""
    old, new = syntax_diagnostics(source.text, language), syntax_diagnostics(text, language)
    if old is None or new is None or len(new) <= len(old):
        return ""
    return str(next(error for error, old_error in zip_longest(new, old) if error != old_error))
