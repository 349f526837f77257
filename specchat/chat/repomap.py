"""A map of a repository: its definitions, those first that the rest of it uses most. Knows texts, no folders, no model.

A file that uses a name vouches for the files that define it, and the more it is vouched for itself, the more this
counts: PageRank (Page and others, 1999) over files. A definition is worth what flows to its file by its name. A name
that several files define is shared between them, and one that very many define says nothing (`main`, `__init__`). A
mere word (`run`) counts a tenth, because many a call of it means somebody else; as the name of a method, nothing.

Definitions are found by a pattern: a syntax tree of each of 2,000 files takes eight seconds, this takes one, and a
definition that stands in a string does a map no harm.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DEFINITION = re.compile(
    r"^[ \t]*(?:(?:export|default|pub(?:\([a-z]+\))?|async|static|abstract|public|private|protected|final) +)*"
    r"(?:def|class|func|fn|function|struct|enum|trait|interface|type|record)\*? +(?:\([^)\n]*\) *)?"
    r"(?P<name>[A-Za-z_$][\w$]*).*$",
    re.MULTILINE,
)
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]{2,}+\(?")
LOWERCASE_WORD = re.compile(r"[a-z]+")
LOWERCASE_WORD_WEIGHT = 0.1
MAX_DEFINERS = 8
DAMPING, PAGERANK_ITERATIONS = 0.85, 20
MAX_LINE_CHARACTERS = 120


@dataclass(frozen=True)
class MapEntry:
    """A definition: where it is, its name, and its first line."""

    file: str
    line: int
    name: str
    signature: str


@dataclass(frozen=True)
class UseEdge:
    """A file that uses a definition of another file, and how much of its voice goes there before it is shared out."""

    using_file: int
    defining_file: int
    definition: int
    weight: float


def build_repo_map(files: Iterable[tuple[str, str]], max_characters: int) -> str:
    """The most used definitions under the files that they stand in, in the order of the files; "" when there are none.

    "a.py\\n  3: def total(prices):\\n  9: class Cart:\\nb.py\\n  1: def main():\\n"
    """
    best, left, opened = list[MapEntry](), max_characters, set[str]()
    for each in rank_definitions(files):
        size = len(_format_entry(each)) + (0 if each.file in opened else len(each.file) + 1)
        if size <= left:
            left -= size
            opened.add(each.file)
            best.append(each)
    by_file = defaultdict[str, list[MapEntry]](list)
    for each in sorted(best, key=lambda each: (each.file, each.line)):
        by_file[each.file].append(each)
    return "".join(f"{file}\n" + "".join(map(_format_entry, found)) for file, found in by_file.items())


def rank_definitions(files: Iterable[tuple[str, str]]) -> list[MapEntry]:
    """Every definition of these files (name and text), the most used first."""
    found, places, used = list[MapEntry](), list[int](), list[set[str]]()
    for place, (file, text) in enumerate(files):
        own = _definitions(file, text)
        found += own
        places += [place] * len(own)
        used.append(_used_names(text) - {each.name for each in own})
    worth = _pagerank(_use_edges(found, places, used), len(used), len(found))
    return [found[n] for n in sorted(range(len(found)), key=lambda n: (-worth[n], found[n].file, found[n].line))]


def _definitions(file: str, text: str) -> list[MapEntry]:
    found, line, end = list[MapEntry](), 1, 0
    for match in DEFINITION.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        found.append(MapEntry(file, line, match["name"], match[0].rstrip()[:MAX_LINE_CHARACTERS]))
    return found


def _used_names(text: str) -> set[str]:
    """Types, by their capital, and whatever is called; the words of comments are neither."""
    return {name.rstrip("(") for name in set(IDENTIFIER.findall(text)) if name[0].isupper() or name.endswith("(")}


def _use_edges(found: Sequence[MapEntry], places: Sequence[int], used: Sequence[set[str]]) -> list[UseEdge]:
    """Who uses what of whom; a name of several definitions is shared between them."""
    defining = defaultdict[str, list[int]](list)
    for number, each in enumerate(found):
        defining[each.name].append(number)
    weights = [_name_weight(each) for each in found]
    telling = {name: numbers for name, numbers in defining.items() if len(numbers) <= MAX_DEFINERS}
    return [
        UseEdge(by, places[number], number, weights[number] / len(telling[name]))
        for by, names in enumerate(used)
        for name in sorted(names & telling.keys())
        for number in telling[name]
        if weights[number]
    ]


def _name_weight(each: MapEntry) -> float:
    """How surely a use of the name means this definition."""
    if not LOWERCASE_WORD.fullmatch(each.name):
        return 1.0
    return 0.0 if each.signature[0].isspace() else LOWERCASE_WORD_WEIGHT


def _pagerank(uses: Sequence[UseEdge], files: int, definitions: int) -> Sequence[float]:
    """What each definition is worth: the flow of PageRank along its uses. [files] voices become [definitions]."""
    if not uses:
        return [0.0] * definitions
    import numpy

    by, of, definition = (numpy.array([getattr(use, name) for use in uses], int) for name in ("by", "of", "definition"))
    weight = numpy.array([use.weight for use in uses], float)
    share = weight / numpy.bincount(by, weight, minlength=files)[by]
    voice = numpy.full(files, 1 / files)
    for _ in range(PAGERANK_ITERATIONS):
        heard = numpy.bincount(of, share * voice[by], minlength=files)
        voice = DAMPING * heard + (1 - DAMPING * heard.sum()) / files
    return numpy.bincount(definition, share * voice[by], minlength=definitions).tolist()


def _format_entry(each: MapEntry) -> str:
    return f"  {each.line}: {each.signature.strip()}\n"
