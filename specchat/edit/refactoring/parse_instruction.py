"""From the words of an instruction to operations, without a model: all of the words, or none.

The patterns of `instruction_words.toml` have to match the whole instruction. "rename add to plus and make it faster" is
no operation, and neither is anything that names no exact thing. Knows no file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any

from specchat.edit.refactoring.operations import (
    AddParameter,
    NameKind,
    Operation,
    Removable,
    Remove,
    Rename,
    SetValue,
    SortImports,
)

WORD_TABLE = Path(__file__).with_name("instruction_words.toml")
MAX_CHARACTERS = 300
OPENING_QUOTES, CLOSING_QUOTES = "`'\"“”‘’„«", "`'\"“”‘’»"
IDENTIFIER = r"[^\W\d][\w$]*"
QUALIFIED_NAME = rf"{IDENTIFIER}(?:(?:\.|::){IDENTIFIER})*"
NUMBER = r"[-+]?(?:0[xob][\da-f_]+|\d[\d_]*(?:\.\d+)?(?:e[-+]?\d+)?)"
QUOTED = r"`[^`\n]+`|'[^'\n]*'|\"[^\"\n]*\""
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class WordTable:
    """The words of one language that people write in."""

    words: Mapping[str, Any]

    def patterns(self, operation: str) -> list[re.Pattern[str]]:
        return [self._compile(each) for each in self.words.get(operation, [])]

    @cached_property
    def before(self) -> re.Pattern[str]:
        return re.compile(rf"\A\W*(?:(?:{'|'.join(self.words['polite'])})[\s,]+)+", re.IGNORECASE)

    @cached_property
    def after(self) -> re.Pattern[str]:
        endings = "|".join(self._expand(each) for each in [*self.words["closing"], *self.words["everywhere"]])
        return re.compile(rf"(?:[\s,]+(?:{endings}))+\Z", re.IGNORECASE)

    @cached_property
    def joints(self) -> re.Pattern[str]:
        """What may stand between two instructions."""
        words = "|".join(sorted(self.words["and"], key=len, reverse=True))
        return re.compile(rf"(?:\s*[,;.]\s*|\s+)(?:{words})\s+|\s*[,;.]\s+", re.IGNORECASE)

    @cached_property
    def kinds(self) -> Mapping[NameKind, re.Pattern[str]]:
        return {NameKind(kind): re.compile(words, re.IGNORECASE) for kind, words in self.words["kinds"].items()}

    def kind_of(self, word: str | None) -> NameKind:
        return next((kind for kind, words in self.kinds.items() if word and words.fullmatch(word)), NameKind.ANY)

    def thing_of(self, word: str, table: str) -> Removable | None:
        for key, words in self.words.get(table, {}).items():
            if re.fullmatch(self._expand(words), word, re.IGNORECASE):
                return REMOVABLES[key]
        return None

    def constant_of(self, word: str) -> str:
        """Return "true", "false" or "none" for a word of this language; "" for any other."""
        constants: Mapping[str, str] = self.words["constants"]
        return next((key for key, words in constants.items() if re.fullmatch(words, word, re.IGNORECASE)), "")

    def _compile(self, pattern: str) -> re.Pattern[str]:
        return re.compile(self._expand(pattern), re.IGNORECASE)

    def _expand(self, pattern: str) -> str:
        return PLACEHOLDER.sub(lambda match: self._part(match[1]), pattern)

    def _part(self, name: str) -> str:
        """What a name in braces stands for; names that have a group occur once in a pattern."""
        article, where, kind = self.words["article"], self.words["where"], self._any_kind
        match name:
            case "name":
                return _quoted("old")
            case "new":
                return rf"(?:{article}\s+)?{_quoted('new')}(?:\s+{where}\s+{self._scope('later')})?"
            case "target":
                named = rf"(?:{self.words['named']}\s+)?"
                before = rf"(?:{article}\s+)?(?:(?P<kind>{kind})\s+)?{named}"
                return (
                    rf"{before}{_quoted('old')}(?:\s+(?P<kind_after>{kind}))?(?:\s+{where}\s+{self._scope('scope')})?"
                )
            case "kind":
                return rf"(?P<kind_alone>{kind})"
            case "value" | "old_value":
                constants = "|".join(self.words["constants"].values())
                return rf"(?P<{name}>{QUOTED}|{NUMBER}|\b(?:{constants})\b)"
            case "annotation":
                return rf"(?P<annotation>`?{IDENTIFIER}(?:\[[\w\s,.|\[\]]+\])?`?)"
            case "remove":
                return self.words["remove_verbs"]
            case "things":
                return rf"(?P<things>.+?)(?:\s+{self.words['where_from']}\s+{self._scope('scope')})?"
        return self._expand(str(self.words[name]))

    @cached_property
    def _any_kind(self) -> str:
        words = "|".join(self.words["kinds"].values()).split("|")
        return "(?:" + "|".join(sorted(words, key=len, reverse=True)) + ")"

    def _scope(self, group: str) -> str:
        kind, article = self._any_kind, self.words["article"]
        return rf"(?:{article}\s+)?(?:{kind}\s+)?{_quoted(group)}(?:\s+{kind})?"


def _quoted(group: str) -> str:
    """A name, with or without quotes and `()`."""
    return rf"(?P<{group}_quote>[{OPENING_QUOTES}]?)(?P<{group}>{QUALIFIED_NAME})(?:\(\))?[{CLOSING_QUOTES}]?"


REMOVABLES: Mapping[str, Removable] = {
    "prints": Removable.PRINTS, "logging": Removable.LOGGING, "comments": Removable.COMMENTS,
    "docstrings": Removable.DOCSTRINGS, "unused_imports": Removable.UNUSED_IMPORTS,
}  # fmt: skip


@cache
def word_tables() -> tuple[WordTable, ...]:
    """All languages, English first."""
    return tuple(WordTable(each) for each in tomllib.loads(WORD_TABLE.read_text(encoding="utf-8")).values())


@lru_cache(maxsize=8)  # an edit asks several times for its one instruction
def parse_instruction(instruction: str, file_name: str = "") -> tuple[Operation, ...]:
    """The operations that an instruction is, in their order; none when it is, or may be, anything else.

    >>> parse_instruction("Please rename the function `add` to plus.")
    (Rename(old='add', new='plus', kind=<NameKind.FUNCTION: 'function'>, scope=''),)
    """
    text = SPACES.sub(" ", instruction).strip()
    if not text or len(text) > MAX_CHARACTERS:
        return ()
    for table in word_tables():
        if found := _parse_all(table, _without_file(table, text, file_name)):
            return found
    return ()


def _without_file(table: WordTable, text: str, file_name: str) -> str:
    """The instruction without "in `a.py`" at its end or its beginning, for the file of this name."""
    base = re.escape(PurePath(file_name).name)
    if not base:
        return text
    file = rf"{table.words['in_file']}\s+[`'\"@]*(?:[\w.~-]*/)*{base}[`'\"]*"
    text = re.sub(rf"\s+{file}(?P<end>\s*[.!?]*)\Z", r"\g<end>", text, flags=re.IGNORECASE)
    return re.sub(rf"\A{file}\s*[,:]?\s+", "", text, flags=re.IGNORECASE)


def _parse_all(table: WordTable, text: str, earlier: Operation | None = None) -> tuple[Operation, ...]:
    text = _strip(table, text)
    if found := _parse_one(table, text, earlier):
        return found
    for joint in table.joints.finditer(text):
        first = _parse_one(table, _strip(table, text[: joint.start()]), earlier)
        if first and (rest := _parse_all(table, text[joint.end() :], first[-1])):
            return (*first, *rest)
    return ()


def _strip(table: WordTable, text: str) -> str:
    """The instruction without politeness, "everywhere" and the like, and punctuation."""
    text = table.before.sub("", text.strip()).rstrip(" .!?")
    return table.after.sub("", text).rstrip(" .!?,;")


def _parse_one(table: WordTable, text: str, earlier: Operation | None) -> tuple[Operation, ...]:
    for operation, parse in PARSERS.items():
        if operation == "rename_again" and not isinstance(earlier, Rename):
            continue
        for pattern in table.patterns(operation):
            match = pattern.fullmatch(text)
            if match and (found := parse(table, match)):
                return found
    return ()


def _parse_rename(table: WordTable, match: re.Match[str]) -> tuple[Operation, ...]:
    target, new = _Target.of(table, match), match["new"]
    if target is None or not _is_name(table, match, "new") or not _is_name(table, match, "later"):
        return ()
    if target.scope and match["later"]:
        return ()
    scope = target.scope or (match["later"] or "")
    if "." in new and target.name_with_scope.rpartition(".")[0] != new.rpartition(".")[0]:
        return ()
    return (Rename(target.name, new.rpartition(".")[2], target.kind, _join(scope, target.name_scope)),)


def _parse_sort(_table: WordTable, _match: re.Match[str]) -> tuple[Operation, ...]:
    return (SortImports(),)


def _parse_remove(table: WordTable, match: re.Match[str]) -> tuple[Operation, ...]:
    if not _is_name(table, match, "scope"):
        return ()
    found: list[Operation] = []
    for part in table.joints.split(match["things"].replace(", ", " , ").replace(" , ", ", ")):
        removal = _parse_thing(table, part.strip())
        if removal is None:
            return ()
        found.append(replace(removal, scope=match["scope"] or ""))
    return tuple(found)


def _parse_thing(table: WordTable, text: str) -> Remove | None:
    every = re.match(rf"(?:{table.words['all']})\s+", text, re.IGNORECASE)
    text = text[every.end() :] if every else text
    text = re.sub(rf"\A(?:{table.words['article']})\s+", "", text, flags=re.IGNORECASE)
    if several := table.thing_of(text, "things"):
        return Remove(several)
    one = table.thing_of(text, "one_thing")
    return Remove(one, is_single=not every) if one else None


def _parse_value(table: WordTable, match: re.Match[str]) -> tuple[Operation, ...]:
    target = _Target.of(table, match)
    if target is None:
        return ()
    groups = match.groupdict()
    kind = NameKind.PARAMETER if groups.get("default") else target.kind
    scope = _join(target.scope, target.name_scope)
    old = _value(table, groups.get("old_value") or "")
    return (SetValue(target.name, _value(table, match["value"]), kind, scope, old),)


def _parse_parameter(table: WordTable, match: re.Match[str]) -> tuple[Operation, ...]:
    target = _Target.of(table, match)
    if target is None or not _is_name(table, match, "new") or "." in match["new"]:
        return ()
    annotation = (match["annotation"] or "").strip("`")
    function = _join(target.scope, target.name_with_scope)
    return (AddParameter(function, match["new"], _value(table, match["value"]), annotation),)


PARSERS: Mapping[str, Callable[[WordTable, re.Match[str]], tuple[Operation, ...]]] = {
    "set_value": _parse_value,
    "rename": _parse_rename,
    "rename_again": _parse_rename,
    "sort_imports": _parse_sort,
    "remove": _parse_remove,
    "add_parameter": _parse_parameter,
}


@dataclass(frozen=True)
class _Target:
    name_with_scope: str
    kind: NameKind
    scope: str

    @classmethod
    def of(cls, table: WordTable, match: re.Match[str]) -> _Target | None:
        """The target of a pattern; None for words that are certainly, or perhaps, no names."""
        groups = match.groupdict()
        words = [groups.get(key) for key in ("kind", "kind_after", "kind_alone")]
        named = [table.kind_of(word) for word in words if word]
        if not _is_name(table, match, "old") or not _is_name(table, match, "scope") or len(named) > 1:
            return None
        is_kind_word = table.kind_of(groups["old"]) and not groups["old_quote"]
        if is_kind_word and named:  # "the class method": either word may be the name
            return None
        kind = named[0] if named else NameKind.ANY
        return cls(groups["old"].replace("::", "."), kind, (groups.get("scope") or "").replace("::", "."))

    @property
    def name(self) -> str:
        return self.name_with_scope.rpartition(".")[2]

    @property
    def name_scope(self) -> str:
        scope = self.name_with_scope.rpartition(".")[0]
        return "" if scope in ("self", "cls", "this") else scope


def _is_name(table: WordTable, match: re.Match[str], group: str) -> bool:
    """Whether a group holds a name, or nothing; words like "it" count only in quotes."""
    groups = match.groupdict()
    word = groups.get(group)
    if not word or groups[f"{group}_quote"]:
        return True
    if {word, word[0].lower() + word[1:]} & set(table.words["no_names"]):
        return False
    return group in ("old", "new") or not table.kind_of(word)


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _value(table: WordTable, text: str) -> str:
    """A value as written; a word like "true" becomes "true", "false" or "none"."""
    if text.startswith("`"):
        return text.strip("`")
    return table.constant_of(text) or text
