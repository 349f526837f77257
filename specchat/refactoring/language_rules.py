"""What is known about each language (`language_rules.toml`), as values."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from specchat.edit.operations import NameKind
from specchat.syntax.languages import language_tables

TABLES = language_tables(__file__)
Context = tuple[str, str]  # the type of the node around a name, and the field in which the name stands; "" for none
ANY_FIELD = "*"
PYTHON = "python"


class LanguageRules:
    """The rules of one language; the file explains them."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        names = lambda key: frozenset[str](table.get(key, "").split())
        contexts = lambda key: frozenset(map(_context, names(key)))
        self.prints: str = table.get("prints", "")
        self.constants: Sequence[str] = table.get("constants", ("true", "false", "null"))
        self.values: Mapping[str, Sequence[str]] = table.get("values", {})
        self.rebinding: Mapping[str, str] = table.get("rebinding", {})
        self.name_types, self.scopes, self.shorthands = names("name_types"), names("scopes"), names("shorthands")
        self.function_scopes, self.member_scopes = names("function_scopes"), names("member_scopes")
        self.wrappers, self.foreign, self.refused = contexts("wrappers"), contexts("foreign"), contexts("refused")
        # what declares a name, as what, and whether the name counts around it, as that of a function does
        self.declarations: Mapping[Context, tuple[NameKind, bool]] = {
            _context(each): (NameKind(kind.removeprefix("outer ")), kind.startswith("outer "))
            for kind, places in table.get("declares", {}).items()
            for each in places.split()
        }
        self.reserved, self.plain_marks = names("reserved"), names("plain_marks")
        self.repeatable = frozenset(map(NameKind, names("repeatable")))
        self.renamed_kinds = frozenset(map(NameKind, names("renamed_kinds") or NameKind))
        self.unsafe_text, self.lookups = table.get("unsafe_text", ""), table.get("lookups", "")
        self.seen_in: tuple[str, ...] = tuple(table.get("seen_in", "").split())
        self.ordered, self.needs_import = bool(table.get("ordered")), bool(table.get("needs_import"))
        self.comments_count: Mapping[str, str] = table.get("comments_count", {})


@cache
def directive_pattern() -> re.Pattern[str]:
    """The beginning of a comment that changes what a program or a tool does."""
    words, starts = ("|".join(TABLES["comments"][key]) for key in ("words", "starts"))
    return re.compile(rf"(?:#+|//+|/\*+|<!--|--)[ \t]*(?:{words})|{starts}", re.IGNORECASE)


@cache
def metadata_pattern() -> re.Pattern[str]:
    """A block of comments that a tool reads."""
    return re.compile("|".join(TABLES["comments"]["metadata"]), re.MULTILINE)


def rule_words(table: str, key: str) -> frozenset[str]:
    """The names or kinds of nodes of a table that is about all languages."""
    return frozenset(TABLES[table][key].split())


@cache
def rules_of(language: str) -> LanguageRules:
    """The rules of a language; those of an unknown one are empty."""
    return LanguageRules(TABLES.get(language, {}))


def _context(place: str) -> Context:
    node, _, field = place.partition(".")
    return node, field
