"""TOML files with the line number of every key, for error messages. Knows no key by name.

`tomllib` reports the line of a syntax error only, so the lines of keys are found by a second scan of the text.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from specchat.errors import ProfileError
from specchat.profile.validation import KeyPath, SettingsSource, did_you_mean

KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
DOTTED_KEY = rf"{KEY}(?:\s*\.\s*{KEY})*"
HEADER = re.compile(rf"\s*(?P<open>\[\[?)\s*(?P<name>{DOTTED_KEY})\s*\]")
ASSIGNMENT = re.compile(rf"\s*(?P<name>{DOTTED_KEY})\s*=")
FIRST_KEY = re.compile(rf"[\s\[]*(?P<name>{KEY})")
ERROR_LOCATION = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)\Z", re.DOTALL)
STANDS_TWICE = "Cannot overwrite", "Cannot declare"  # how `tomllib` says it
QUOTES = ('"""', "'''")


@dataclass(frozen=True)
class TomlFile:
    path: Path
    tables: dict[str, Any]
    lines: dict[KeyPath, int]

    def location_of(self, path: KeyPath) -> str:
        """The file and line of a key, or of the table that contains it."""
        for length in range(len(path), 0, -1):
            if line := self.lines.get(path[:length]):
                return f"{self.path}:{line}"
        return str(self.path)

    def source(self, kind: str) -> SettingsSource:
        return SettingsSource(kind, self.tables, self.location_of)


def read_toml(path: Path, known_keys: tuple[str, ...] = ()) -> TomlFile:
    """Read a file; a ProfileError is one line and suggests the nearest of `known_keys` for a mistyped key."""
    if path.exists() and not path.is_file():
        raise ProfileError(f"{path}: cannot be read: not a regular file")
    try:
        return parse_toml(path, path.read_bytes(), known_keys)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=32)
def parse_toml(path: Path, content: bytes, known_keys: tuple[str, ...] = ()) -> TomlFile:
    """The same for content that is already read. The result is cached, so callers must not change the tables."""
    try:
        text = content.decode("utf-8")
        tables = tomllib.loads(f"{text}\n")  # an error in the last line has its number, too
        return TomlFile(path, tables, dict(_key_lines(text)))
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(_syntax_error(path, content.decode("utf-8"), str(error), known_keys)) from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 text") from error
    except RecursionError as error:
        raise ProfileError(f"{path}: not valid TOML: nested too deeply") from error


def _syntax_error(path: Path, text: str, message: str, known: tuple[str, ...]) -> str:
    error = ERROR_LOCATION.match(message)
    if not error:
        return f"{path}:{text.count(chr(10)) + 1}: not valid TOML: {message}"
    line = int(error["line"])
    key = FIRST_KEY.match(text.split("\n")[line - 1])
    name = key["name"].strip("\"'") if key else ""
    if error["what"].startswith(STANDS_TWICE):
        return f"{path}:{line}: {name!r} stands twice; keep one"
    hint = did_you_mean(name, known) if name not in known else ""
    return f"{path}:{line}: not valid TOML: {error['what']} (column {error['column']}){hint and f';{hint}'}"


def _key_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    open_quotes = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if open_quotes:
            open_quotes = "" if open_quotes in line else open_quotes
            continue
        if header := HEADER.match(line):
            table = _split_key(header["name"])
            if header["open"] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            yield table, number
        elif assignment := ASSIGNMENT.match(line):
            names = _split_key(assignment["name"])
            for length in range(1, len(names) + 1):
                yield (*table, *names[:length]), number
            open_quotes = next((quotes for quotes in QUOTES if line.count(quotes) % 2), "")


def _split_key(dotted: str) -> KeyPath:
    return tuple(word.strip("\"'") for word in re.findall(KEY, dotted))
