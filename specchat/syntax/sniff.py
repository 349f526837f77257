"""The language of a text without a name: by lines that only this language has, and by its parser.

A short selection may be valid in several languages; then it has none here. Prose has none either.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from specchat.syntax.languages import PLAIN_TEXT, language_of
from specchat.syntax.parse import syntax_diagnostics

MAX_SNIFFED_CHARACTERS = 20_000
MIN_LEAD = 2  # a language with errors needs so many times the telling lines of the next one
DATA_START = re.compile(r'\s*(?:\{\s*(?:"|\}|\Z)|\[\s*(?:[\[{"\d-]|\]))')

# Lines, or parts of lines, that tell a language. Each line counts once for a language.
TELLING_LINES: Mapping[str, re.Pattern[str]] = {
    language: re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    for language, patterns in {
        "python": (
            r"^\s*(?:async )?def \w+\(.*",
            r"^\s*class \w+(?:\(.*\))?:\s*(?:#.*)?$",
            r"^\s*from [\w.]+ import ",
            r"^\s*import [\w.]+(?: as \w+)?(?:, [\w.]+)*$",
            r"^\s*(?:if|elif|while|with|except|for) .*:\s*(?:#.*)?$",
            r"^\s*(?:else|try|finally):\s*(?:#.*)?$",
            r"\bself\.\w",
            r"^\s*@\w[\w.]*(?:\(.*\))?$",
            r"^\s*[rf]?\"\"\"",
            r"^\s*print\(.*\)$",
            r"^\s*(?:raise|yield|assert|lambda|pass|global|nonlocal)\b[^;{]*$",
        ),
        "javascript": (
            r"^\s*(?:export )?(?:const|let|var) [\w{\[].*=",
            r"\bfunction\b ?\w*\(.*\{",
            r"=> ?[{(\w]",
            r"\bconsole\.\w+\(",
            r"^\s*import .* from ['\"]",
            r"\brequire\(['\"]",
            r"^\s*export (?:default|\{)",
            r"===|!==",
            r"^\s*\}\);?$",
        ),
        "typescript": (
            r"^\s*(?:export )?interface \w+.*\{",
            r"^\s*(?:export )?type \w+(?:<.*>)? =",
            r"\w\??: (?:string|number|boolean)\b",
            r"^\s*(?:private|public|readonly) \w+\??:",
            r"\bas (?:const|string|number|any)\b",
            r"^\s*import type ",
        ),
        "go": (
            r"^package \w+$",
            r"^func .*\{",
            r":= ",
            r"^\s*if err != nil",
            r"^type \w+ (?:struct|interface) \{",
            r"\bfmt\.\w+\(",
        ),
        "rust": (
            r"^\s*(?:pub(?:\(\w+\))? )?fn \w+",
            r"\blet mut \w",
            r"^\s*use (?:std|crate|super)::",
            r"^\s*impl\b.*\{",
            r"\w+!\(",
            r"^\s*#\[\w",
            r"^\s*(?:pub )?(?:struct|enum|trait) \w+",
            r"&mut |&str\b",
            r"^\s*match .*\{$",
        ),
        "c": (
            r"^\s*#\s*include [<\"].*\.h[>\"]",
            r"^\s*#\s*(?:define|ifdef|ifndef|endif)\b",
            r"\bprintf\(",
            r"\b(?:malloc|sizeof|free)\(",
            r"^(?:static |const |unsigned )*(?:int|void|char|double|float|size_t)\b[ *]+\w+\(.*",
            r"\bstruct \w+ \*",
            r"\w->\w",
        ),
        "cpp": (
            r"^\s*#\s*include <\w+>",
            r"\bstd::\w",
            r"^\s*template ?<",
            r"^\s*(?:public|private|protected):$",
            r"^\s*namespace\b.*\{",
            r"^\s*using namespace ",
            r"\bcout <<",
        ),
        "java": (
            r"^\s*(?:public|private|protected) (?:static |final |abstract )*[\w<>\[\]]+ \w+.*",
            r"^\s*import java",
            r"\bSystem\.out\.",
            r"^\s*package [\w.]+;$",
            r"^\s*@Override$",
            r"\bnew \w+(?:<.*>)?\(.*\);",
        ),
        "bash": (
            r"^#!.*sh$",
            r"^\s*(?:fi|done|esac|then)\s*$",
            r"^\s*(?:if|while) \[",
            r"; (?:then|do)$",
            r"^\s*echo [\"'$\w]",
            r"\$\{\w+",
            r"^\s*export \w+=",
            r"^\s*\w+\(\) \{$",
            r"^\s*(?:sudo|cd|rm|mkdir|set) [-/~.\w]",
        ),
        "html": (r"(?i:<!doctype html)", r"(?i:</?(?:html|head|body|div|span|p|a|ul|li|table|script|h[1-6])\b[^>]*>)"),
        "css": (r"^\s*[.#@&]?[\w-][\w\s.#:>,()-]*\{\s*$", r"^\s*[\w-]+: [^{}]+;$", r"^\s*\}$"),
        "yaml": (r"^---$", r"^\s*(?:- )?[\w.-]+:(?: [^{;]*[^{;,])?$", r"^\s*- \w[^;(]*$"),
        "toml": (r"^\s*\[\[?[\w.\"-]+\]\]?$", r"^\s*[\w.-]+ = (?:\".*\"|'.*'|\[.*|\d[\d_.-]*|true|false)$"),
    }.items()
}
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
        language: sum(bool(pattern.search(line)) for line in lines) for language, pattern in TELLING_LINES.items()
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


def _narrower(one: _Candidate, other: _Candidate) -> str:
    pairs = ((one.language, other.language), (other.language, one.language))
    return next((NARROWER[pair] for pair in pairs if pair in NARROWER), "")


def _at_margin(text: str) -> str:
    """A selection without the indentation of its first line."""
    lines = text.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)
