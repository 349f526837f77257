"""A map of a repository: its most used definitions. Knows texts, and no folder and no model.

Definitions are ranked by PageRank (Page et al., 1999) over files: a file that uses a name links to the files that
define it, and a definition scores the flow to its file through its name. A name with several definitions shares its
flow among them, and a name with very many (`main`, `__init__`) is ignored. A lowercase word (`run`) counts a tenth,
because many calls of it mean another definition; as the name of a method, it is ignored.

A regular expression finds the definitions: syntax trees of 2,000 files take eight seconds, this takes one, and a false
match in a string does no harm.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    file: str
    line: int
    name: str
    signature: str


class UseEdge(NamedTuple):
    """A file that uses a definition of another file, and the weight of this link before normalization."""

    using_file: int
    defining_file: int
    definition: int
    weight: float


def build_repo_map(files: Iterable[tuple[str, str]], max_characters: int) -> str:
    """The most used definitions, grouped by file and in the order of the files; "" without definitions.

    "a.py\\n  3: def total(prices):\\n  9: class Cart:\\nb.py\\n  1: def main():\\n"
    """
    left = max_characters
    by_file = defaultdict[str, list[MapEntry]](list)
    for each in rank_definitions(files):
        size = len(_format_entry(each)) + (0 if each.file in by_file else len(each.file) + 1)
        if size <= left:
            left -= size
            by_file[each.file].append(each)
    return "".join(
        f"{file}\n" + "".join(map(_format_entry, sorted(by_file[file], key=lambda each: each.line)))
        for file in sorted(by_file)
    )


def rank_definitions(files: Iterable[tuple[str, str]]) -> list[MapEntry]:
    """Every definition of these files (name and text), the most used first."""
    entries, file_of, used = list[MapEntry](), list[int](), list[set[str]]()
    for number, (file, text) in enumerate(files):
        own = _definitions(file, text)
        entries += own
        file_of += [number] * len(own)
        used.append(_used_names(text) - {each.name for each in own})
    scores = _pagerank(_use_edges(entries, file_of, used), len(used), len(entries))
    order = sorted(range(len(entries)), key=lambda n: (-scores[n], entries[n].file, entries[n].line))
    return [entries[n] for n in order]


def _definitions(file: str, text: str) -> list[MapEntry]:
    entries, line, end = list[MapEntry](), 1, 0
    for match in DEFINITION.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        entries.append(MapEntry(file, line, match["name"], match[0].rstrip()[:MAX_LINE_CHARACTERS]))
    return entries


def _used_names(text: str) -> set[str]:
    """Capitalized names and called names; words of comments are neither."""
    return {name.rstrip("(") for name in set(IDENTIFIER.findall(text)) if name[0].isupper() or name.endswith("(")}


def _use_edges(entries: Sequence[MapEntry], file_of: Sequence[int], used: Sequence[set[str]]) -> list[UseEdge]:
    """The links from files to the definitions that they use; several definitions of a name share the weight."""
    by_name = defaultdict[str, list[int]](list)
    for number, each in enumerate(entries):
        by_name[each.name].append(number)
    weights = [_name_weight(each) for each in entries]
    specific = {name: numbers for name, numbers in by_name.items() if len(numbers) <= MAX_DEFINERS}
    return [
        UseEdge(file, file_of[number], number, weights[number] / len(specific[name]))
        for file, names in enumerate(used)
        for name in sorted(names & specific.keys())
        for number in specific[name]
        if weights[number]
    ]


def _name_weight(entry: MapEntry) -> float:
    """How likely a use of the name means this definition."""
    if not LOWERCASE_WORD.fullmatch(entry.name):
        return 1.0
    return 0.0 if entry.signature[0].isspace() else LOWERCASE_WORD_WEIGHT


def _pagerank(edges: Sequence[UseEdge], files: int, definitions: int) -> Sequence[float]:
    """The score of each definition: the PageRank flow along its edges. Ranks [files] become scores [definitions]."""
    if not edges:
        return [0.0] * definitions
    import numpy

    using, defining, definition, weight = map(numpy.array, zip(*edges, strict=True))
    share = weight / numpy.bincount(using, weight, minlength=files)[using]
    rank = numpy.full(files, 1 / files)
    for _ in range(PAGERANK_ITERATIONS):
        flow = numpy.bincount(defining, share * rank[using], minlength=files)
        rank = DAMPING * flow + (1 - DAMPING * flow.sum()) / files
    return numpy.bincount(definition, share * rank[using], minlength=definitions).tolist()


def _format_entry(entry: MapEntry) -> str:
    return f"  {entry.line}: {entry.signature.strip()}\n"
