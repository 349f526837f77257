"""Edits of real functions by a scripted model that does what was asked, and spoils one thing beside it.

The asked change is a new first line of a function, in plain words that name the function and often no more ("Fix the
bugs in load"). Beside it one thing in the same function is spoiled: a statement, a `return`, an `else`, an `except`, an
`await`, a decorator or a default is left out, or a number, a comparison or a string is another one. `-y` may put that
back or refuse the text; it may not write it. The cases are drawn by a seed.

    python -m tools.lossy_edits --files A.jsonl.gz --files B.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from random import Random

import click

from specchat.syntax import Definition, definitions, language_of
from specchat.syntax.statements import statements
from specchat_bench.columns import markdown_table
from tools.answer_styles import NUMBER, is_valid, without_lines
from tools.contract_table import OUTCOMES, ContractCase, outcome

OWN_FILES = Path(__file__).with_name("edit_files")
COUNT, SEED, MAX_LINES, MAX_FILES = 60, 7, 200, 600
WORDS = (
    "Fix the bugs in {name}", "Make {name} faster", "In {name}, print its name first", "Use a print in {name}",
    "Change {name} to print that it runs", "Modify {name} to correctly say that it runs", "Improve {name}",
    "Update {name} so that it prints its name, and clean it up",
)  # fmt: skip
FIRST_LINES = {
    "python": 'print("{name}")',
    "javascript": 'console.log("{name}");',
    "typescript": 'console.log("{name}");',
    "go": 'println("{name}")',
    "rust": 'println!("{name}");',
}
COMPARISONS = {"==": "!=", "!=": "==", "<=": "<", ">=": ">", "<": "<=", ">": ">="}
COMPARISON = re.compile(r" (==|!=|<=|>=|<|>) ")
STRING = re.compile(r"(?<=[\"'])(\w[\w ]*)(?=[\"'])")


@dataclass(frozen=True)
class Body:
    """The text of a file, and the lines of one function of it, from 0."""

    name: str
    text: str
    first: int
    end: int

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def with_line(self, number: int, line: str) -> str:
        lines = self.lines
        return "\n".join([*lines[:number], line, *lines[number + 1 :]])

    def without(self, first: int, end: int) -> str:
        lines = self.lines
        return "\n".join([*lines[:first], *lines[end:]])


def without_statement(body: Body, pattern: str = "") -> Iterator[str]:
    """The text without a statement of the function."""
    for each in statements(body.text, language_of(body.name)):
        if each.is_inner and body.first + 2 < each.line <= each.last_line <= body.end and re.match(pattern, each.text):
            yield without_lines(body.text, each)


def without_block(body: Body, head: str) -> Iterator[str]:
    """The text without a line that begins so, and the more indented lines below it."""
    lines = body.lines
    for number in range(body.first + 1, body.end):
        if match := re.match(rf"(\s*){head}", lines[number]):
            below = (place for place in range(number + 1, body.end) if lines[place].strip()
                     and len(lines[place]) - len(lines[place].lstrip()) <= len(match[1]))  # fmt: skip
            yield body.without(number, next(below, body.end))


def with_other(body: Body, pattern: re.Pattern[str], new: Callable[[re.Match[str]], str]) -> Iterator[str]:
    """The text with another value in a line of the function."""
    for number in range(body.first + 2, body.end):
        if (match := pattern.search(body.lines[number])) and not body.lines[number].lstrip().startswith(("#", "//")):
            line = body.lines[number]
            yield body.with_line(number, f"{line[: match.start()]}{new(match)}{line[match.end() :]}")


def without_default(body: Body) -> Iterator[str]:
    line = body.lines[body.first]
    if match := re.search(r"(?<=\w)\s?=\s?[^,()]+(?=\)[^)]*\Z)", line):
        yield body.with_line(body.first, line[: match.start()] + line[match.end() :])


def without_decorator(body: Body) -> Iterator[str]:
    if body.first and body.lines[body.first - 1].lstrip().startswith("@"):
        yield body.without(body.first - 1, body.first)


SPOILED: Mapping[str, Callable[[Body], Iterator[str]]] = {
    "a statement lost": without_statement,
    "a return lost": lambda body: without_statement(body, "return"),
    "an else lost": lambda body: without_block(body, r"else\b.*:\s*$"),
    "an elif lost": lambda body: without_block(body, "elif "),
    "an except lost": lambda body: without_block(body, "except "),
    "an await lost": lambda body: with_other(body, re.compile(r"\bawait "), lambda _match: ""),
    "a default lost": without_default,
    "a decorator lost": without_decorator,
    "another number": lambda body: with_other(body, NUMBER, lambda match: str(int(match[0]) + 1)),
    "another comparison": lambda body: with_other(body, COMPARISON, lambda match: f" {COMPARISONS[match[1]]} "),
    "another string": lambda body: with_other(body, STRING, lambda match: f"{match[0]}s"),
}


def own_files() -> list[tuple[str, str]]:
    return [(path.stem, path.read_text(encoding="utf-8")) for path in sorted(OWN_FILES.iterdir())]


def corpus_files(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError):  # a damaged line
                    row = json.loads(line)
                    yield Path(row["path"]).name, row["text"]


def drawn_cases(
    files: Iterable[tuple[str, str]], count: int, seed: int = SEED
) -> Iterator[tuple[str, ContractCase, str]]:
    """What is spoiled, the edit, and the answer: each kind by turns, each in another function."""
    random = Random(seed)
    bodies = [body for name, text in files for body in _bodies(name, text)]
    random.shuffle(bodies)
    words, left = cycle(WORDS), dict.fromkeys(SPOILED, 0)
    for kind in islice(cycle(SPOILED), count * len(SPOILED)):
        while left[kind] < len(bodies):
            old, definition = bodies[left[kind]]
            left[kind] += 1
            if made := _case(kind, old, definition, next(words), random):
                yield made
                count -= 1
                break
        if not count:
            return


def _bodies(name: str, text: str) -> Iterator[tuple[str, Definition]]:
    language = language_of(name)
    if language in FIRST_LINES and text.count("\n") <= MAX_LINES and "\r" not in text and is_valid(name, text):
        found = definitions(text, language)
        names = Counter(each.name for each in found)
        for each in found:
            is_whole = not any(
                each is not other and each.first_line <= other.first_line <= each.last_line for other in found
            )
            if each.kind in ("function", "method") and names[each.name] == 1 and is_whole and len(each.name) > 2:
                yield json.dumps([name, text]), each


def _case(
    kind: str, file: str, definition: Definition, words: str, random: Random
) -> tuple[str, ContractCase, str] | None:
    """An edit and its spoiled answer; None where this kind of thing is not in the function."""
    name, text = json.loads(file)
    lines, line = text.split("\n"), definition.first_line - 1
    while lines[line].lstrip().startswith("@"):
        line += 1
    header = lines[line].rstrip()
    first = FIRST_LINES[language_of(name)].format(name=definition.name)
    body = next((each for each in lines[line + 1 :] if each.strip()), "")
    if not header.endswith((":", "{")) or body.lstrip().startswith(('"', "'", 'r"', "#", "//", "/*", "*")):
        return None
    new = f"{body[: len(body) - len(body.lstrip())]}{first}"
    right = "\n".join([*lines[: line + 1], new, *lines[line + 1 :]])
    spoiled = [each for each in SPOILED[kind](Body(name, right, line, definition.last_line + 1)) if each != right]
    spoiled = [each for each in spoiled if is_valid(name, each)]
    if not spoiled or not is_valid(name, right):
        return None
    case = ContractCase(name, text, words.format(name=definition.name), ((text, right),), "", "", ("", ""))
    return kind, case, random.choice(spoiled)


def outcomes_of(files: Iterable[tuple[str, str]], count: int) -> Iterator[tuple[str, ContractCase, str, str, str]]:
    for kind, case, answer in drawn_cases(files, count):
        yield kind, case, answer, *outcome(case, answer)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--files", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="packed lines of JSON with path and text; tools/edit_files by default")  # fmt: skip
@click.option("--count", type=int, default=COUNT, show_default=True)
@click.option("--reasons", is_flag=True, help="say why, for each answer")
def main(files: tuple[Path, ...], count: int, *, reasons: bool) -> None:
    """Print a table with a row for each kind of thing that is spoiled."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in SPOILED}
    texts = Random(SEED).sample(sorted(corpus_files(files)), MAX_FILES) if files else own_files()
    for kind, case, answer, result, why in outcomes_of(texts, count):
        counts[kind][result] += 1
        if reasons:
            click.echo(f"{kind}: {case.name}: {case.instruction}: {result}: {why[:300]}", err=True)
        if result == "WRONG WRITTEN":
            click.echo(answer, err=True)
    rows = [[kind, str(each.total()), *(str(each[name]) for name in OUTCOMES[1:])] for kind, each in counts.items()]
    total = sum(counts.values(), Counter[str]())
    rows.append(["all", str(total.total()), *(str(total[name]) for name in OUTCOMES[1:])])
    click.echo(markdown_table(["beside the change", "edits", *OUTCOMES[1:]], rows))


if __name__ == "__main__":
    main()
