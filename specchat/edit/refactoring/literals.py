"""Constants as people and programs write them: what kind a literal is, and how it is written in a language."""

import re
from collections.abc import Mapping
from enum import StrEnum

from specchat.edit.refactoring.language_rules import rules_of

NUMBER = re.compile(
    r"[-+]?(?:0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*)?\.?\d[\d_]*\.?(?:[eE][-+]?\d+)?)(?:[uUlLfF]{1,3}|n|[iuf]\d{1,2}|[iu]size)?"
)
# a number computed from numbers: 60 * 60, 2**20, (1 + 2) << 3
ARITHMETIC = re.compile(r"[-+*/%()<>&|~^\s\d_.xXoObBa-fA-FeE]+")
STRING = re.compile(r"(?P<prefix>[rRuUbB]{0,2})(?P<quote>[\"'])(?P<text>(?:(?!(?P=quote))[^\\\n])*)(?P=quote)")
CONSTANT_NAMES: tuple[str, ...] = ("true", "false", "none")


class LiteralKind(StrEnum):
    NUMBER = "number"
    STRING = "text"
    BOOLEAN = "boolean"
    NOTHING = "nothing"
    OTHER = "expression"


def kind_of_literal(text: str, language: str) -> LiteralKind:
    true, false, nothing = rules_of(language).constants
    if text in (true, false):
        return LiteralKind.BOOLEAN
    if text and text == nothing:
        return LiteralKind.NOTHING
    if STRING.fullmatch(text):
        return LiteralKind.STRING
    is_number = NUMBER.fullmatch(text) or (re.search(r"\d", text) and ARITHMETIC.fullmatch(text))
    return LiteralKind.NUMBER if is_number else LiteralKind.OTHER


def written_in(value: str, language: str) -> str:
    """A value of an instruction in a language: "true" is True in Python."""
    written: Mapping[str, str] = dict(zip(CONSTANT_NAMES, rules_of(language).constants, strict=True))
    return written.get(value.lower(), value)


def in_quotes_of(value: str, old: str) -> str:
    """A text with the kind of quotes that the old one has, where it needs no escapes for that."""
    new_match, old_match = STRING.fullmatch(value), STRING.fullmatch(old)
    if not new_match or not old_match or old_match["quote"] in new_match["text"]:
        return value
    return f"{old_match['prefix']}{old_match['quote']}{new_match['text']}{old_match['quote']}"
