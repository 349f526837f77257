"""The language of a text without a name: by lines that only this language has, and by its parser.

A short selection may be valid in several languages; then it has none here. Prose has none either.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from specchat.own_tables import own_tables
from specchat.syntax.languages import PLAIN_TEXT, language_of
from specchat.syntax.parse import syntax_diagnostics

MAX_SNIFFED_CHARACTERS = 20_000
MIN_LEAD = 2  # a language with errors needs so many times the telling lines of the next one
DATA_START = re.compile(r'\s*(?:\{\s*(?:"|\}|\Z)|\[\s*(?:[\[{"\d-]|\]))')

# Their lines also stand in other texts, so most lines have to be theirs.
COVERING_LANGUAGES = ("yaml", "toml", "css")
MIN_COVERED_SHARE = 0.8
NEEDED_LINES = {"toml": re.compile(r"^\s*\[\[?[\w.\"-]+\]\]?$", re.MULTILINE)}  # assignments alone are also Python
# which of two languages counts where one contains the other
NARROWER = {("typescript", "javascript"): "typescript", ("cpp", "c"): "cpp"}


@dataclass(frozen=True)
class _Candidate:
    language: str
    telling_lines: int
    is_parsed: bool


def sniff_language(text: str) -> str:
    """The language of a text; PLAIN_TEXT when it may be several, or none.

    "def f(x):\\n    return x" is "python"; "x = 1" and "Fix the tests" are plain text.
    """
    text = text[:MAX_SNIFFED_CHARACTERS]
    if by_shebang := language_of("", text):
        return by_shebang
    if DATA_START.match(text) and syntax_diagnostics(text, "json") == []:
        return "json"
    lines = [line for line in text.split("\n") if line.strip()]
    counts = {
        language: sum(bool(pattern.search(line)) for line in lines) for language, pattern in _telling_lines().items()
    }
    candidates = [
        _Candidate(language, count, not syntax_diagnostics(_at_margin(text), language))
        for language, count in counts.items()
        if count > (MIN_COVERED_SHARE * len(lines) if language in COVERING_LANGUAGES else 0)
        and (language not in NEEDED_LINES or NEEDED_LINES[language].search(text))
    ]
    if any(each.is_parsed and each.language not in COVERING_LANGUAGES for each in candidates):
        candidates = [each for each in candidates if each.language not in COVERING_LANGUAGES]
    ranked = sorted(candidates, key=lambda each: (each.is_parsed, each.telling_lines), reverse=True)
    if not ranked:
        return PLAIN_TEXT
    best, *others = ranked
    for other in others:
        best = next((each for each in (best, other) if each.language == _narrower(best, other)), best)
    rivals = [each for each in others if each != best and not _narrower(best, each)]
    lead = max((each.telling_lines for each in rivals if each.is_parsed or not best.is_parsed), default=0)
    is_clear = best.telling_lines > lead if best.is_parsed else best.telling_lines >= max(2, MIN_LEAD * lead)
    return best.language if is_clear else PLAIN_TEXT


@cache
def _telling_lines() -> Mapping[str, re.Pattern[str]]:
    tables = own_tables(__file__, "telling_lines.toml")
    return {language: re.compile("|".join(f"(?:{each})" for each in lines)) for language, lines in tables.items()}


def _narrower(one: _Candidate, other: _Candidate) -> str:
    pairs = ((one.language, other.language), (other.language, one.language))
    return next((NARROWER[pair] for pair in pairs if pair in NARROWER), "")


def _at_margin(text: str) -> str:
    """A selection without the indentation of its first line."""
    lines = text.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)
