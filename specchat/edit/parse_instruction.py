"""From the words of an instruction to operations, without a model: all of the words, or none.

A few plain English patterns (`parse_instruction.toml`), which have to match the whole instruction: "rename add to plus
and make it faster" is no operation, and neither is anything that names no exact thing. Of the text it knows the names:
"rename value to amount" is an operation where there is a `value`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import PurePath

from specchat.edit import operations as ops
from specchat.syntax.languages import language_tables

MAX_CHARACTERS = 300
TABLES = language_tables(__file__)
KINDS: Mapping[ops.NameKind, str] = {ops.NameKind(kind): words for kind, words in TABLES["kinds"].items()}
THINGS: Mapping[ops.Removable, Sequence[str]] = {ops.Removable(what): words for what, words in TABLES["things"].items()}
CONSTANTS: Mapping[str, str] = {"true": "true", "false": "false", "none": "none|null|nil"}
NO_NAMES, EVERYDAY_WORDS, NO_SCOPES = (
    frozenset(TABLES["words"][key].split()) for key in ("no_names", "everyday", "no_scopes")
)
KIND, ARTICLE = "(?:" + "|".join(KINDS.values()) + ")", "(?:the|a|an|my|our|its)"
NAME = r"[^\W\d][\w$]*(?:-\w+)*(?:(?:\.|::)[^\W\d][\w$]*(?:-\w+)*)*"
QUOTED = r"`[^`\n]+`|'[^'\n]*'|\"[^\"\n]*\""
NUMBER = r"[-+]?(?:0[xob][\da-f_]+|\d[\d_]*(?:\.\d+)?(?:e[-+]?\d+)?)"
VERSION_SUFFIX = r"(?:[-+.]?[a-zA-Z][\w.+-]*)?"
VERSION = rf"v?\d+(?:\.\d+){{2,}}{VERSION_SUFFIX}"  # 0.2.0, 1.0.0-rc.1
VALUE = rf"{QUOTED}|{NUMBER}|{VERSION}|\b(?:{'|'.join(CONSTANTS.values())})\b"
AROUND = {
    key: re.compile(words.replace("\n", "").format(name=NAME), re.IGNORECASE) for key, words in TABLES["around"].items()
}


def _quoted(group: str) -> str:
    """A name, with or without quotes and `()`."""
    return rf"(?P<{group}_quote>[`'\"]?)(?P<{group}>{NAME})(?:\(\))?[`'\"]?"


def _scope(group: str) -> str:
    return rf"(?:{ARTICLE} )?(?:{KIND} )?{_quoted(group)}(?: {KIND})?"


Found = tuple[ops.Operation, ...]


@lru_cache(maxsize=8)  # an edit asks several times for its one instruction
def parse_instruction(instruction: str, file_name: str = "", code: str = "") -> Found:
    """The operations on a text that an instruction is, in their order; none when it is, or may be, anything else.

    >>> parse_instruction("Please rename the function `add` to plus.")
    (Rename(old='add', new='plus', kind=<NameKind.FUNCTION: 'function'>, scope=''),)
    """
    text = " ".join(instruction.split())
    if not text or len(text) > MAX_CHARACTERS:
        return ()
    return _parse_all(_without_file(text, file_name), code)


def _without_file(text: str, file_name: str) -> str:
    """The instruction without "in `a.py`" at its end or its beginning, for the file of this name."""
    base = re.escape(PurePath(file_name).name)
    if not base:
        return text
    file = rf"(?:in|of|from)(?: the)?(?: file)? [`'\"@]*(?:[\w.~-]*/)*{base}[`'\"]*"
    text = re.sub(rf" {file}(?P<end>\s*[.!?]*)\Z", r"\g<end>", text, flags=re.IGNORECASE)
    return re.sub(rf"\A{file}\s*[,:]? ", "", text, flags=re.IGNORECASE)


def _parse_all(text: str, code: str, earlier: ops.Operation | None = None) -> Found:
    text = _strip(text)
    if found := _parse_one(text, code, earlier):
        return found
    for joint in AROUND["joint"].finditer(text):
        first = _parse_one(_strip(text[: joint.start()]), code, earlier)
        if first and (rest := _parse_all(text[joint.end() :], code, first[-1])):
            return (*first, *rest)
    return ()


def _strip(text: str) -> str:
    """The instruction without politeness, "everywhere" and the like, and punctuation."""
    return AROUND["closing"].sub("", AROUND["polite"].sub("", text.strip()).rstrip(" .!?")).rstrip(" .!?,;")


def _parse_one(text: str, code: str, earlier: ops.Operation | None) -> Found:
    """One operation; "c to d" is one after another renaming."""
    for pattern, parse in _rules():
        if (match := pattern.fullmatch(text)) and (found := parse(match, code)):
            return found
    return _parse_one(f"rename {text}", code, None) if isinstance(earlier, ops.Rename) else ()


@dataclass(frozen=True)
class _Target:
    """A name that an instruction is about, what it is, and what it belongs to."""

    name: str
    kind: ops.NameKind
    scope: str

    @classmethod
    def of(cls, match: re.Match[str], code: str) -> _Target | None:
        """The target of a pattern; None for words that are perhaps no names."""
        groups = match.groupdict()
        named = [_kind(word) for key in ("kind", "kind_after", "kind_alone") if (word := groups.get(key))]
        old = groups["old"]
        is_kind_word = not groups["old_quote"] and old.islower() and _kind(old) is not ops.NameKind.ANY
        is_either = is_kind_word and named and not _has_name(code, old)  # "the class method": either may be the name
        if not _are_names(match, code, "old", "scope") or len(named) > 1 or is_either:
            return None
        owner, _, name = old.replace("::", ".").rpartition(".")
        is_own = owner in ("self", "cls", "this")
        kind = named[0] if named else ops.NameKind.ATTRIBUTE if is_own else ops.NameKind.ANY
        return cls(name, kind, _join((groups.get("scope") or "").replace("::", "."), "" if is_own else owner))


def _rename(match: re.Match[str], code: str) -> Found:
    target, groups = _Target.of(match, code), match.groupdict()
    outer, (owner, _, new) = groups.get("scope_before") or groups.get("later") or "", groups["new"].rpartition(".")
    is_moved = owner and owner != groups["old"].rpartition(".")[0]
    if target is None or is_moved or (outer and groups.get("scope")):
        return ()
    is_named = _are_names(match, code, "new", "later", "scope_before")
    return (ops.Rename(target.name, new, target.kind, _join(outer, target.scope)),) if is_named else ()


def _rename_known(match: re.Match[str], code: str) -> Found:
    return _rename(match, code) if _has_name(code, match["old"]) else ()


def _remove(match: re.Match[str], code: str) -> Found:
    scope = match["scope"] or ""
    parts = AROUND["joint"].split(match["things"]) if _are_names(match, code, "scope") else []
    found = [_thing(part.strip(), code) for part in parts]
    return tuple(replace(each, scope=scope) for each in found if each) if all(found) else ()


def _remove_definition(match: re.Match[str], code: str) -> Found:
    target = _Target.of(match, code)
    if target is None or target.kind not in (ops.NameKind.FUNCTION, ops.NameKind.METHOD, ops.NameKind.CLASS):
        return ()
    return (ops.RemoveDefinition(target.name, target.kind, target.scope),)


def _thing(text: str, code: str) -> ops.Remove | None:
    every = re.match(r"(?:all(?: of)?(?: the)?|every|each|any) ", text, re.IGNORECASE)
    text = re.sub(rf"\A{ARTICLE} ", "", text[every.end() :] if every else text, flags=re.IGNORECASE)
    for what, (one, several) in THINGS.items():
        if re.fullmatch(several, text, re.IGNORECASE):
            return ops.Remove(what)
        if re.fullmatch(one, text, re.IGNORECASE):
            return ops.Remove(what, is_single=not every)
    called = AROUND["called"].fullmatch(text)
    name = re.sub("[`'\"()!]", "", (called["before"] or called["after"] or called["alone"])) if called else ""
    if not called or not re.search(rf"(?<![\w.]){re.escape(name)}!?\s*\(", code):
        return None
    return ops.Remove(ops.Removable.CALLS, is_single=not every and bool(called["one"] or called["one_of"]), called=name)


def _set(match: re.Match[str], code: str) -> Found:
    target, groups = _Target.of(match, code), match.groupdict()
    if target is None:
        return ()
    name = _name_meant(target.name, code) or target.name
    kind, old_value = ops.NameKind.PARAMETER if groups.get("default") else target.kind, groups.get("old_value") or ""
    return (ops.SetValue(name, _value(match["value"]), kind, target.scope, _value(old_value)),)


def _set_words(match: re.Match[str], code: str) -> Found:
    """Words such as "line length" are `line_length`, `line-length` or `LINE_LENGTH`, if the text has one of these."""
    name, old_value = _name_meant(match["words"], code), match["old_value"] or ""
    return (ops.SetValue(name, _value(match["value"]), old_value=_value(old_value)),) if name else ()


def _add_parameter(match: re.Match[str], code: str) -> Found:
    target, new = _Target.of(match, code), match["new"]
    if target is None or "." in new or not _are_names(match, code, "new"):
        return ()
    function = _join(target.scope, target.name)
    return (ops.AddParameter(function, new, _value(match["value"]), match["annotation"] or ""),)


def _move(match: re.Match[str], code: str) -> Found:
    target, anchor = _Target.of(match, code), match["anchor"]
    is_known = _has_name(code, match["old"]) and _has_name(code, anchor) and _are_names(match, code, "anchor")
    if target is None or not is_known:
        return ()
    return (ops.Move(_join(target.scope, target.name), anchor, match["side"].lower() in ("before", "above")),)


Parse = Callable[[re.Match[str], str], Found]
PARSERS: Mapping[str, Parse] = {
    "set": _set, "set_words": _set_words, "rename": _rename, "rename_known": _rename_known,
    "sort_imports": lambda _match, _code: (ops.SortImports(),), "remove": _remove,
    "remove_definition": _remove_definition, "move": _move, "add_parameter": _add_parameter,
}  # fmt: skip


@cache
def _rules() -> list[tuple[re.Pattern[str], Parse]]:
    parts = {"article": ARTICLE, "kind": KIND, "name": NAME, "value": VALUE}
    parts |= {group: _quoted(group) for group in ("old", "new")}
    parts |= {f"in_{group}": _scope(group) for group in ("scope", "scope_before", "later", "anchor")}
    for key, part in TABLES["parts"].items():
        parts[key] = part.format(**parts)
    return [
        (re.compile(pattern.format(**parts), re.IGNORECASE), PARSERS[what])
        for what, patterns in TABLES["instructions"].items()
        for pattern in patterns
    ]


def _kind(word: str) -> ops.NameKind:
    return next((kind for kind, words in KINDS.items() if re.fullmatch(words, word, re.IGNORECASE)), ops.NameKind.ANY)


def _are_names(match: re.Match[str], code: str, *groups: str) -> bool:
    """Whether groups hold names, or nothing; words like "it" count only in quotes, and "value" where a text has it."""
    words = {group: word for group in groups if (word := match.groupdict().get(group)) and not match[f"{group}_quote"]}
    is_known = _has_name(code, match.groupdict().get("old") or "")
    for group, word in words.items():
        lower = word[0].lower() + word[1:]
        is_scope = group not in ("old", "new") and word.islower() and _kind(word) is not ops.NameKind.ANY
        is_there = is_known if group == "new" else _has_name(code, word) and not (is_scope and word in NO_SCOPES)
        is_named = group == "old" and is_there and match.groupdict().get("kind")  # "the variable now"
        if (lower in NO_NAMES and not is_named) or ((lower in EVERYDAY_WORDS or is_scope) and not is_there):
            return False
    return True


def _has_name(code: str, name: str) -> bool:
    return bool(name and re.search(rf"(?<![\w-]){re.escape(name.rpartition('.')[2])}(?![\w-])", code))


def _name_meant(words: str, code: str) -> str:
    """The one name of a text that these words spell, in any case: `MAX_SIZE` for "max size"; "" if there is none."""
    if _has_name(code, words) and " " not in words:
        return words
    any_case = r"[-_]?".join(map(re.escape, re.split(r"[ _-]+", words.strip("_"))))
    name = rf"(?<![\w-])_*{any_case}_*(?![\w-])"
    for pattern in (rf"{name}(?=[\"']?\s*[:=])", name):
        if found := set(re.findall(pattern, code, re.IGNORECASE)):
            return found.pop() if len(found) == 1 else ""
    return ""


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _value(text: str) -> str:
    """A value as written; a word like "true" becomes "true", "false" or "none"."""
    if text.startswith("`"):
        return text.strip("`")
    return next((key for key, words in CONSTANTS.items() if re.fullmatch(words, text, re.IGNORECASE)), text)
