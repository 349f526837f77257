"""From the words of an instruction to operations, without a model: all of the words, or none.

A few plain English patterns, which have to match the whole instruction: "rename add to plus and make it faster" is no
operation, and neither is anything that names no exact thing. Knows no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath

from specchat.edit.refactoring.operations import (
    AddParameter,
    NameKind,
    Operation,
    Removable,
    Remove,
    RemoveDefinition,
    Rename,
    SetValue,
    SortImports,
)

MAX_CHARACTERS = 300
KINDS: Mapping[NameKind, str] = {
    NameKind.FUNCTION: "function|func|helper",
    NameKind.METHOD: "method",
    NameKind.CLASS: "class",
    NameKind.VARIABLE: "(?:local |global |loop )?variable|local|global|var",
    NameKind.PARAMETER: "(?:keyword )?argument|parameter|param|arg",
    NameKind.ATTRIBUTE: "attribute|field|property|member",
    NameKind.IMPORT: "import|alias",
    NameKind.CONSTANT: "constant|const|setting",
    NameKind.TYPE: "type|struct|interface|enum",
}
THINGS: Mapping[Removable, tuple[str, str]] = {  # one, and several
    Removable.PRINTS: (r"print(?:\(\))?(?: statement| call)?", r"print(?:\(\))? (?:statements|calls|lines)|prints"),
    Removable.LOGGING: ("logg(?:ing|er) call", "log(?:ging|ger)? (?:calls|statements|lines)"),
    Removable.COMMENTS: ("(?:code )?comment", "(?:code )?comments"),
    Removable.DOCSTRINGS: ("doc-?string", "doc-?strings"),
    Removable.UNUSED_IMPORTS: (
        "unused import",
        "(?:unused|unneeded) imports|imports (?:that|which) are (?:un|not )used",
    ),
}
CONSTANTS: Mapping[str, str] = {"true": "true", "false": "false", "none": "none|null|nil"}
# Words that are no names unless they stand in quotes: "rename it to something better" names nothing.
NO_NAMES = frozenset(
    re.findall(
        r"\w+",
        """it its this that them these those everything all the an to as into in of something anything better shorter
        longer clearer name names snake_case camelcase pascalcase lowercase uppercase english file one be and or with
        for from default value you me now instead called named variables functions methods classes constants parameters
        arguments attributes fields properties types imports identifiers""",
    )
)
KIND, ARTICLE = "(?:" + "|".join(KINDS.values()) + ")", "(?:the|a|an|my|our|its)"
NAME = r"[^\W\d][\w$]*(?:-\w+)*(?:(?:\.|::)[^\W\d][\w$]*)*"
QUOTED = r"`[^`\n]+`|'[^'\n]*'|\"[^\"\n]*\""
NUMBER = r"[-+]?(?:0[xob][\da-f_]+|\d[\d_]*(?:\.\d+)?(?:e[-+]?\d+)?)"
VALUE = rf"{QUOTED}|{NUMBER}|\b(?:{'|'.join(CONSTANTS.values())})\b"
POLITE = re.compile(r"\A(?:(?:please|now|just|also|(?:can|could|would|will) you|let's)[\s,]+)+", re.IGNORECASE)
CLOSING = re.compile(
    r"(?:[\s,]+(?:please|thanks|thank you|everywhere|(?:in|from) (?:the|this) (?:whole |entire )?(?:file|module|code)|"
    r"at the top(?: of the file)?|"
    r"and (?:update|fix|rename) (?:all )?(?:its |the )?(?:uses|usages|references|callers)))+\Z",
    re.IGNORECASE,
)
JOINT = re.compile(r"(?:\s*[,;.]\s*|\s+)(?:and then|and also|and|then)\s+|\s*[,;.]\s+", re.IGNORECASE)


def _quoted(group: str) -> str:
    """A name, with or without quotes and `()`."""
    return rf"(?P<{group}_quote>[`'\"]?)(?P<{group}>{NAME})(?:\(\))?[`'\"]?"


def _scope(group: str) -> str:
    return rf"(?:{ARTICLE} )?(?:{KIND} )?{_quoted(group)}(?: {KIND})?"


TARGET = (
    rf"(?:{ARTICLE} )?(?:(?P<kind>{KIND}) )?(?:named |called )?{_quoted('old')}(?: (?P<kind_after>{KIND}))?"
    rf"(?: (?:in|of|inside) {_scope('scope')})?"
)
NEW = rf"{_quoted('new')}(?: (?:in|of|inside) {_scope('later')})?"
TO = "(?:to|into|as|->|=>|→)"
DEFAULT = "(?P<default>default(?: value)?)"
WITH_DEFAULT = r"(?: ?= ?| (?:with (?:the |a )?default(?: value)?(?: of)?) )"
ANNOTATION = rf"(?:: ?(?P<annotation>{NAME}(?:\[[\w\s,.|\[\]]+\])?))?"
FROM = rf"(?: from (?P<old_value>{VALUE}))?"
PARAMETER = "(?:new |optional )?(?:parameter|argument)"
CHANGE = "(?:change|set|update|increase|raise|decrease|lower|reduce|bump)"
PATTERNS: Mapping[str, tuple[str, ...]] = {
    "value": (
        rf"{CHANGE} (?:the )?(?:(?:value|{DEFAULT}) (?:of|for) )?{TARGET}{FROM} to (?P<value>{VALUE})",
        rf"(?:change|set|update) {TARGET}'s (?:{DEFAULT}|value) to (?P<value>{VALUE})",
        rf"(?:set|make) {TARGET} ?= ?(?P<value>{VALUE})",
        rf"{_quoted('old')} = (?P<value>{VALUE})",
        rf"use (?P<value>{VALUE}) as (?:the )?(?:new )?(?:value|{DEFAULT}) (?:of|for) {TARGET}",
    ),
    "rename": (
        rf"rename (?:from )?{TARGET} {TO} {NEW}",
        rf"in {_scope('scope_before')}, rename {TARGET} {TO} {NEW}",
        rf"change the name of {TARGET} (?:to|into) {NEW}",
        rf"change (?:the )?(?P<kind_alone>{KIND})(?:'s)? name (?:from )?{_quoted('old')} (?:to|into) {NEW}",
        rf"call {TARGET} {NEW} instead",
    ),
    "rename_again": (rf"{TARGET} {TO} {NEW}",),
    "sort": (
        r"(?:sort|order|reorder) (?:all )?(?:the )?imports?(?: statements)?(?: alphabetically)?",
        r"put (?:the )?imports in(?: alphabetical)? order",
    ),
    "remove": (
        rf"(?:remove|delete|drop|strip|get rid of) (?P<things>.+?)(?: (?:in|of|from) {_scope('scope')})?",
    ),
    "remove_definition": (rf"(?:remove|delete|drop|get rid of) {TARGET}",),
    "parameter": (
        rf"add (?:{ARTICLE} )?{PARAMETER} {_quoted('new')}{ANNOTATION}{WITH_DEFAULT}(?P<value>{VALUE})`? to {TARGET}",
    ),
}  # fmt: skip


@lru_cache(maxsize=8)  # an edit asks several times for its one instruction
def parse_instruction(instruction: str, file_name: str = "") -> tuple[Operation, ...]:
    """The operations that an instruction is, in their order; none when it is, or may be, anything else.

    >>> parse_instruction("Please rename the function `add` to plus.")
    (Rename(old='add', new='plus', kind=<NameKind.FUNCTION: 'function'>, scope=''),)
    """
    text = " ".join(instruction.split())
    if not text or len(text) > MAX_CHARACTERS:
        return ()
    return _parse_all(_without_file(text, file_name))


def _without_file(text: str, file_name: str) -> str:
    """The instruction without "in `a.py`" at its end or its beginning, for the file of this name."""
    base = re.escape(PurePath(file_name).name)
    if not base:
        return text
    file = rf"(?:in|of|from)(?: the)?(?: file)? [`'\"@]*(?:[\w.~-]*/)*{base}[`'\"]*"
    text = re.sub(rf" {file}(?P<end>\s*[.!?]*)\Z", r"\g<end>", text, flags=re.IGNORECASE)
    return re.sub(rf"\A{file}\s*[,:]? ", "", text, flags=re.IGNORECASE)


def _parse_all(text: str, earlier: Operation | None = None) -> tuple[Operation, ...]:
    text = _strip(text)
    if found := _parse_one(text, earlier):
        return found
    for joint in JOINT.finditer(text):
        first = _parse_one(_strip(text[: joint.start()]), earlier)
        if first and (rest := _parse_all(text[joint.end() :], first[-1])):
            return (*first, *rest)
    return ()


def _strip(text: str) -> str:
    """The instruction without politeness, "everywhere" and the like, and punctuation."""
    return CLOSING.sub("", POLITE.sub("", text.strip()).rstrip(" .!?")).rstrip(" .!?,;")


@lru_cache(maxsize=1)
def _compiled() -> Mapping[str, list[re.Pattern[str]]]:
    return {name: [re.compile(each, re.IGNORECASE) for each in found] for name, found in PATTERNS.items()}


def _parse_one(text: str, earlier: Operation | None) -> tuple[Operation, ...]:
    for name, patterns in _compiled().items():
        if name == "rename_again" and not isinstance(earlier, Rename):
            continue
        for pattern in patterns:
            match = pattern.fullmatch(text)
            if match and (found := PARSERS[name](match)):
                return found
    return ()


def _parse_rename(match: re.Match[str]) -> tuple[Operation, ...]:
    target, groups = _target(match), match.groupdict()
    if target is None or not all(_is_name(match, each) for each in ("new", "later", "scope_before")):
        return ()
    old, kind, scope, new = *target, groups["new"]
    outer = groups.get("scope_before") or groups.get("later") or ""
    if (scope and outer) or ("." in new and old.rpartition(".")[0] != new.rpartition(".")[0]):
        return ()
    return (Rename(_last(old), _last(new), kind, _join(scope or outer, _owner(old))),)


def _parse_sort(_match: re.Match[str]) -> tuple[Operation, ...]:
    return (SortImports(),)


def _parse_remove(match: re.Match[str]) -> tuple[Operation, ...]:
    if not _is_name(match, "scope"):
        return ()
    found = [_thing(part.strip()) for part in JOINT.split(match["things"])]
    return tuple(replace(each, scope=match["scope"] or "") for each in found if each) if all(found) else ()


def _parse_remove_definition(match: re.Match[str]) -> tuple[Operation, ...]:
    target = _target(match)
    if target is None or target[1] not in (NameKind.FUNCTION, NameKind.METHOD, NameKind.CLASS):
        return ()
    old, kind, scope = target
    return (RemoveDefinition(_last(old), kind, _join(scope, _owner(old))),)


def _thing(text: str) -> Remove | None:
    every = re.match(r"(?:all(?: of)?(?: the)?|every|each|any) ", text, re.IGNORECASE)
    text = text[every.end() :] if every else text
    text = re.sub(rf"\A{ARTICLE} ", "", text, flags=re.IGNORECASE)
    for what, (one, several) in THINGS.items():
        if re.fullmatch(several, text, re.IGNORECASE):
            return Remove(what)
        if re.fullmatch(one, text, re.IGNORECASE):
            return Remove(what, is_single=not every)
    return None


def _parse_value(match: re.Match[str]) -> tuple[Operation, ...]:
    target, groups = _target(match), match.groupdict()
    if target is None:
        return ()
    old, kind, scope = target
    kind = NameKind.PARAMETER if groups.get("default") else kind
    old_value = _value(groups.get("old_value") or "")
    return (SetValue(_last(old), _value(match["value"]), kind, _join(scope, _owner(old)), old_value),)


def _parse_parameter(match: re.Match[str]) -> tuple[Operation, ...]:
    target = _target(match)
    if target is None or not _is_name(match, "new") or "." in match["new"]:
        return ()
    old, _kind, scope = target
    return (AddParameter(_join(scope, old), match["new"], _value(match["value"]), match["annotation"] or ""),)


PARSERS: Mapping[str, Callable[[re.Match[str]], tuple[Operation, ...]]] = {
    "value": _parse_value, "rename": _parse_rename, "rename_again": _parse_rename, "sort": _parse_sort,
    "remove": _parse_remove, "remove_definition": _parse_remove_definition, "parameter": _parse_parameter,
}  # fmt: skip


def _target(match: re.Match[str]) -> tuple[str, NameKind, str] | None:
    """The name of a pattern with what it is and its scope; None for words that are perhaps no names."""
    groups = match.groupdict()
    named = [_kind(word) for key in ("kind", "kind_after", "kind_alone") if (word := groups.get(key))]
    is_kind_word = not groups["old_quote"] and _kind(groups["old"]) is not NameKind.ANY
    if not _is_name(match, "old") or not _is_name(match, "scope") or len(named) > 1 or (is_kind_word and named):
        return None  # "the class method": either word may be the name
    scope = (groups.get("scope") or "").replace("::", ".")
    return groups["old"].replace("::", "."), named[0] if named else NameKind.ANY, scope


def _kind(word: str) -> NameKind:
    return next((kind for kind, words in KINDS.items() if re.fullmatch(words, word, re.IGNORECASE)), NameKind.ANY)


def _is_name(match: re.Match[str], group: str) -> bool:
    """Whether a group holds a name, or nothing; words like "it" count only in quotes."""
    word = match.groupdict().get(group)
    if not word or match[f"{group}_quote"]:
        return True
    if word in NO_NAMES or word[0].lower() + word[1:] in NO_NAMES:
        return False
    return group in ("old", "new") or _kind(word) is NameKind.ANY


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _owner(name: str) -> str:
    scope = name.rpartition(".")[0]
    return "" if scope in ("self", "cls", "this") else scope


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _value(text: str) -> str:
    """A value as written; a word like "true" becomes "true", "false" or "none"."""
    if text.startswith("`"):
        return text.strip("`")
    return next((key for key, words in CONSTANTS.items() if re.fullmatch(words, text, re.IGNORECASE)), text)
