"""Whether a new text still parses, asked only where the old one did, and what plugins say of it. Nothing is run."""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import PurePath

from specchat.edit.source_text import Source
from specchat.errors import BrokenEditError, PluginError
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.extension import Extension
from specchat.syntax import language_of, syntax_diagnostics


def check_syntax(source: Source, text: str) -> None:
    """BrokenEditError when the new text has faults that the old one had not; what nobody can parse passes."""
    language = language_of(source.name, source.text)
    fault = (
        _new_parser_error(language, source.text, text)
        if language in PARSERS
        else _new_tree_sitter_error(language, source, text)
    )
    if fault:
        raise BrokenEditError(f"{source.name}: the new text does not parse: {fault}")
    if check := find_extensions("checks").get(PurePath(source.name).suffix):
        _run_plugin_check(check, source, text)


def _run_plugin_check(check: Extension, source: Source, text: str) -> None:
    """A check that does not work says nothing of the text: it is told of, and passed over."""
    try:
        fault = check.call(source.text, text)
    except PluginError as error:
        print_warning(str(error))
        return
    if fault:
        raise BrokenEditError(f"{source.name}: the new text does not pass the check of {check.plugin_name}: {fault}")


def _parse_python(text: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        compile(text, "new text", "exec", dont_inherit=True)


PARSERS: Mapping[str, Callable[[str], object]] = {"python": _parse_python, "json": json.loads, "toml": tomllib.loads}


def _new_parser_error(language: str, old: str, new: str) -> str:
    parse = PARSERS[language]
    return "" if _parser_error(parse, old) else _parser_error(parse, new)


def _parser_error(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def _new_tree_sitter_error(language: str, source: Source, text: str) -> str:
    """tree-sitter goes on after a fault, so faults are counted; the first new one is told."""
    old, new = syntax_diagnostics(source.text, language), syntax_diagnostics(text, language)
    if old is None or new is None or len(new) <= len(old):
        return ""
    return str(next(fault for fault, known in zip_longest(new, old) if fault != known))
