"""Where a completion that was cut may end: after a line, or a group of tokens, with which the document still parses.

The texts here are strings and a language of `syntax`; nothing here knows an editor or an engine.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from specchat.syntax import syntax_diagnostics

MAX_PARSED_CHARACTERS = (
    50_000  # a longer document takes too long to parse for each part, and is trimmed without its tree
)
MAX_TRIES = 8
TOKEN = re.compile(r"\w+|\"[^\"\n]*\"|'[^'\n]*'|\s+|.")
GROUP_END = re.compile(r"\w+|[\"'].*[\"']|[)\]};:]")
DELIMITER = re.compile(r"\"\"\"|'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[()\[\]{}]")
EMPTY_BODIES = (":", " {}")  # after "def f(a)", and after "function f(a)"
CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Surroundings:
    """The text before the line of the cursor, that line up to the cursor, and the lines below."""

    above: str
    line_prefix: str
    below: str
    language: str


def trim_to_syntax(text: str, surroundings: Surroundings, *, is_cut: bool) -> str:
    """The longest part of the text with which the document still parses; "" for none.

    The text loses whole lines from its end; its only line loses groups of tokens if it `is_cut`: of "f(a, b.wid" stays
    "f(a". A document that does not parse anyway, or whose language is unknown, only loses a group that is incomplete.
    """
    candidates = _cut_candidates(text) if is_cut else _line_candidates(text)
    if not _parses(surroundings, "", ""):
        return next(candidates, "")
    tried = (each for each, _ in zip(candidates, range(MAX_TRIES), strict=False))
    return next((each for each in tried if _fits(surroundings, each)), "")


def _line_candidates(text: str) -> Iterator[str]:
    """The text, then without its last line, and so on."""
    lines = text.split("\n")
    for count in range(len(lines), 0, -1):
        candidate = "\n".join(lines[:count]).rstrip()
        if candidate.strip() and (count == len(lines) or lines[count - 1].strip()):
            yield candidate


def _cut_candidates(text: str) -> Iterator[str]:
    """The complete lines; if there are none, the groups of the last line."""
    complete, _, last = text.rpartition("\n")
    if complete.strip():
        yield from _line_candidates(complete)
    else:
        yield from (text[: len(text) - len(last)] + group for group in _group_candidates(last))


def _group_candidates(line: str) -> Iterator[str]:
    """Parts of a line that end with a complete token, the longest first.

    A name before a dot is half a name, and the last word may go on.
    """
    tokens = list(TOKEN.finditer(line))
    for token, following in zip(reversed(tokens), [None, *reversed(tokens[1:])], strict=True):
        is_word = token[0][0].isalnum() or token[0][0] == "_"
        if not GROUP_END.fullmatch(token[0]) or (is_word and (following is None or following[0] == ".")):
            continue
        yield line[: token.end()]


def _fits(surroundings: Surroundings, text: str) -> bool:
    """Whether the document parses with this text, or with it and what is still missing."""
    line = surroundings.line_prefix + text
    closing = _closing_delimiters(line)
    endings = dict.fromkeys([closing, "", *(closing + body for body in EMPTY_BODIES)])
    return any(_parses(surroundings, line, ending) for ending in endings)


def _closing_delimiters(text: str) -> str:
    """What closes the brackets and the long strings that the text leaves open."""
    open_delimiters: list[str] = []
    for match in DELIMITER.finditer(text):
        delimiter = match[0]
        if open_delimiters and open_delimiters[-1] in ('"""', "'''"):
            if delimiter == open_delimiters[-1]:
                open_delimiters.pop()
        elif delimiter in ('"""', "'''") or delimiter in CLOSING:
            open_delimiters.append(delimiter)
        elif open_delimiters and delimiter == CLOSING.get(open_delimiters[-1]):
            open_delimiters.pop()
    return "".join(CLOSING.get(each, each) for each in reversed(open_delimiters))


def _parses(surroundings: Surroundings, line: str, closing: str) -> bool:
    """Whether the document with this line has a tree without errors; never for an unknown language."""
    document = f"{surroundings.above}{line}{closing}\n{surroundings.below}"
    if len(document) > MAX_PARSED_CHARACTERS:
        return False
    return syntax_diagnostics(document, surroundings.language) == []
