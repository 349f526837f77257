"""TOML files with the lines that their keys stand on, for errors that point at one. Knows no key by name.

`tomllib` tells the line of a syntax error only; where a key stands is found by reading the lines again.
"""

from __future__ import annotations

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
QUOTES = ('"""', "'''")


@dataclass(frozen=True)
class TomlFile:
    """A file that was read: what it says, and on which line it says it."""

    path: Path
    tables: dict[str, Any]
    lines: dict[KeyPath, int]

    def location_of(self, path: KeyPath) -> str:
        """Where a key stands, or the table that it is in."""
        for length in range(len(path), 0, -1):
            if line := self.lines.get(path[:length]):
                return f"{self.path}:{line}"
        return str(self.path)

    def source(self, kind: str) -> SettingsSource:
        """What this file wants."""
        return SettingsSource(kind, self.tables, self.location_of)


def read_toml(path: Path, known_keys: tuple[str, ...] = ()) -> TomlFile:
    """A file, or a ProfileError in one line; `known` are words that a mistyped one may have been meant for."""
    try:
        return parse_toml(path, path.read_bytes(), known_keys)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=32)
def parse_toml(path: Path, content: bytes, known_keys: tuple[str, ...] = ()) -> TomlFile:
    """The same for a file that was read already. Parsed once for each content, so nobody may change the tables."""
    try:
        text = content.decode("utf-8")
        return TomlFile(path, tomllib.loads(text), dict(_key_lines(text)))
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(_syntax_error(path, content.decode("utf-8"), str(error), known_keys)) from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not a text in UTF-8") from error
    except RecursionError as error:
        raise ProfileError(f"{path}: not valid TOML: nested too deeply") from error


def _syntax_error(path: Path, text: str, message: str, known: tuple[str, ...]) -> str:
    """One line about what tomllib refused, with the word that was perhaps meant."""
    found = ERROR_LOCATION.match(message)
    if not found:
        return f"{path}:{text.count(chr(10)) + 1}: not valid TOML: {message}"
    line = int(found["line"])
    word = FIRST_KEY.match(text.split("\n")[line - 1])
    name = word["name"].strip("\"'") if word else ""
    meant = did_you_mean(name, known) if name not in known else ""
    end = f";{meant}" if meant else ""
    return f"{path}:{line}: not valid TOML: {found['what']} (column {found['column']}){end}"


def _key_lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Every header and key with its line."""
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
