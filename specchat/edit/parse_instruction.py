"""From the words of an instruction to operations, without a model: all of the words, or none.

A few plain English patterns, which have to match the whole instruction: "rename add to plus and make it faster" is no
operation, and neither is anything that names no exact thing. Knows no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import PurePath

from specchat.edit.operations import (
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
Found = tuple[Operation, ...]


@lru_cache(maxsize=8)  # an edit asks several times for its one instruction
def parse_instruction(instruction: str, file_name: str = "") -> Found:
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


def _parse_all(text: str, earlier: Operation | None = None) -> Found:
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


def _parse_one(text: str, earlier: Operation | None) -> Found:
    """One operation; "c to d" is one after another renaming."""
    for pattern, parse in _rules():
        if (match := pattern.fullmatch(text)) and (found := parse(match)):
            return found
    return _parse_one(f"rename {text}", None) if isinstance(earlier, Rename) else ()


@dataclass(frozen=True)
class _Target:
    """A name that an instruction is about, what it is, and what it belongs to."""

    name: str
    kind: NameKind
    scope: str

    @classmethod
    def of(cls, match: re.Match[str]) -> _Target | None:
        """The target of a pattern; None for words that are perhaps no names."""
        groups = match.groupdict()
        named = [_kind(word) for key in ("kind", "kind_after", "kind_alone") if (word := groups.get(key))]
        is_kind_word = not groups["old_quote"] and _kind(groups["old"]) is not NameKind.ANY
        if not _are_names(match, "old", "scope") or len(named) > 1 or (is_kind_word and named):
            return None  # "the class method": either word may be the name
        owner, _, name = groups["old"].replace("::", ".").rpartition(".")
        owner = "" if owner in ("self", "cls", "this") else owner
        return cls(
            name, named[0] if named else NameKind.ANY, _join((groups.get("scope") or "").replace("::", "."), owner)
        )


def _rename(match: re.Match[str]) -> Found:
    target, groups = _Target.of(match), match.groupdict()
    outer, (owner, _, new) = groups.get("scope_before") or groups.get("later") or "", groups["new"].rpartition(".")
    is_moved = owner and owner != groups["old"].rpartition(".")[0]
    if target is None or is_moved or (outer and groups.get("scope")):
        return ()
    is_named = _are_names(match, "new", "later", "scope_before")
    return (Rename(target.name, new, target.kind, _join(outer, target.scope)),) if is_named else ()


def _remove(match: re.Match[str]) -> Found:
    found = [_thing(part.strip()) for part in JOINT.split(match["things"])] if _are_names(match, "scope") else []
    return tuple(replace(each, scope=match["scope"] or "") for each in found if each) if all(found) else ()


def _remove_definition(match: re.Match[str]) -> Found:
    target = _Target.of(match)
    if target is None or target.kind not in (NameKind.FUNCTION, NameKind.METHOD, NameKind.CLASS):
        return ()
    return (RemoveDefinition(target.name, target.kind, target.scope),)


def _thing(text: str) -> Remove | None:
    every = re.match(r"(?:all(?: of)?(?: the)?|every|each|any) ", text, re.IGNORECASE)
    text = re.sub(rf"\A{ARTICLE} ", "", text[every.end() :] if every else text, flags=re.IGNORECASE)
    for what, (one, several) in THINGS.items():
        if re.fullmatch(several, text, re.IGNORECASE):
            return Remove(what)
        if re.fullmatch(one, text, re.IGNORECASE):
            return Remove(what, is_single=not every)
    return None


def _set(match: re.Match[str]) -> Found:
    target, groups = _Target.of(match), match.groupdict()
    if target is None:
        return ()
    kind, old_value = NameKind.PARAMETER if groups.get("default") else target.kind, groups.get("old_value") or ""
    return (SetValue(target.name, _value(match["value"]), kind, target.scope, _value(old_value)),)


def _add_parameter(match: re.Match[str]) -> Found:
    target, new = _Target.of(match), match["new"]
    if target is None or "." in new or not _are_names(match, "new"):
        return ()
    function = _join(target.scope, target.name)
    return (AddParameter(function, new, _value(match["value"]), match["annotation"] or ""),)


PATTERNS: Mapping[Callable[[re.Match[str]], Found], tuple[str, ...]] = {
    _set: (
        rf"{CHANGE} (?:the )?(?:(?:value|{DEFAULT}) (?:of|for) )?{TARGET}{FROM} to (?P<value>{VALUE})",
        rf"(?:change|set|update) {TARGET}'s (?:{DEFAULT}|value) to (?P<value>{VALUE})",
        rf"(?:set|make) {TARGET} ?= ?(?P<value>{VALUE})",
        rf"{_quoted('old')} = (?P<value>{VALUE})",
        rf"use (?P<value>{VALUE}) as (?:the )?(?:new )?(?:value|{DEFAULT}) (?:of|for) {TARGET}",
    ),
    _rename: (
        rf"rename (?:from )?{TARGET} {TO} {NEW}",
        rf"in {_scope('scope_before')}, rename {TARGET} {TO} {NEW}",
        rf"change the name of {TARGET} (?:to|into) {NEW}",
        rf"change (?:the )?(?P<kind_alone>{KIND})(?:'s)? name (?:from )?{_quoted('old')} (?:to|into) {NEW}",
        rf"call {TARGET} {NEW} instead",
    ),
    lambda _match: (SortImports(),): (
        r"(?:sort|order|reorder) (?:all )?(?:the )?imports?(?: statements)?(?: alphabetically)?",
        r"put (?:the )?imports in(?: alphabetical)? order",
    ),
    _remove: (rf"(?:remove|delete|drop|strip|get rid of) (?P<things>.+?)(?: (?:in|of|from) {_scope('scope')})?",),
    _remove_definition: (rf"(?:remove|delete|drop|get rid of) {TARGET}",),
    _add_parameter: (
        rf"add (?:{ARTICLE} )?{PARAMETER} {_quoted('new')}{ANNOTATION}{WITH_DEFAULT}(?P<value>{VALUE})`? to {TARGET}",
    ),
}


@cache
def _rules() -> list[tuple[re.Pattern[str], Callable[[re.Match[str]], Found]]]:
    return [(re.compile(each, re.IGNORECASE), parse) for parse, patterns in PATTERNS.items() for each in patterns]


def _kind(word: str) -> NameKind:
    return next((kind for kind, words in KINDS.items() if re.fullmatch(words, word, re.IGNORECASE)), NameKind.ANY)


def _are_names(match: re.Match[str], *groups: str) -> bool:
    """Whether groups hold names, or nothing; words like "it" count only in quotes."""
    words = {group: word for group in groups if (word := match.groupdict().get(group)) and not match[f"{group}_quote"]}
    is_other = any(word in NO_NAMES or word[0].lower() + word[1:] in NO_NAMES for word in words.values())
    is_kind = any(_kind(word) for group, word in words.items() if group not in ("old", "new"))
    return not is_other and not is_kind


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _value(text: str) -> str:
    """A value as written; a word like "true" becomes "true", "false" or "none"."""
    if text.startswith("`"):
        return text.strip("`")
    return next((key for key, words in CONSTANTS.items() if re.fullmatch(words, text, re.IGNORECASE)), text)
