"""A report of sections, each of which may fail without stopping the others.

Knows tables of words and numbers; knows no GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter

from specchat.plugins.extension import error_text
from specchat_bench.columns import markdown_table

Cell = str | int | float | bool | None
Line = Mapping[str, Cell]  # by column
TIME_LIMIT_SECONDS = 300.0
NAME, ERROR = "what", "error message"


@dataclass(frozen=True)
class Section:
    name: str
    explanation: str
    measure: Callable[[], Iterable[Line]]


@dataclass(frozen=True)
class SectionResult:
    name: str
    explanation: str
    seconds: float
    lines: tuple[Line, ...] = ()
    error: str = ""  # why it ended early, or did not begin

    @property
    def has_errors(self) -> bool:
        return bool(self.error) or any(ERROR in line for line in self.lines)


def run_sections(
    sections: Iterable[Section], progress: Callable[[str], None], limit_seconds: float = TIME_LIMIT_SECONDS
) -> Iterator[SectionResult]:
    """Measure one after the other, whatever happens in the others. Past the limit, the rest is left out."""
    began_at = perf_counter()

    def seconds_so_far() -> float:
        if (seconds := perf_counter() - began_at) > limit_seconds:
            raise TimeoutError(f"the rest is left out: {limit_seconds:.0f} seconds are over")
        return seconds

    for section in sections:
        started_at, lines, error = perf_counter(), list[Line](), ""
        try:
            progress(f"{seconds_so_far():.0f} s: {section.name}")
            for line in section.measure():
                lines.append(line)
                progress(f"{seconds_so_far():.0f} s: {section.name}: {line.get(NAME)}")
        except Exception as raised:  # noqa: BLE001 - drivers, compilers of kernels and libraries raise anything
            error = error_text(raised)
        yield SectionResult(section.name, section.explanation, perf_counter() - started_at, tuple(lines), error)


def attempt(name: str, *parts: Callable[[], Line]) -> Line:
    """A line with the cells of all parts that succeed, and the message of the first that does not."""
    line: dict[str, Cell] = {NAME: name}
    for part in parts:
        try:
            line |= part()
        except Exception as raised:  # noqa: BLE001 - as above
            line.setdefault(ERROR, error_text(raised))
    return line


def as_json(results: Iterable[SectionResult]) -> str:
    return json.dumps({"sections": [asdict(each) for each in results]}, indent=1)


def as_text(result: SectionResult) -> str:
    """The section as a Markdown table, with the columns of all lines in the order in which they appear."""
    columns = list(dict.fromkeys(column for line in result.lines for column in line))
    rows = [[cell_text(line.get(column)) for column in columns] for line in result.lines]
    parts = [f"## {result.name} ({result.seconds:.1f} s)\n{result.explanation}"]
    parts += [markdown_table(columns, rows)] if rows else []
    parts += [f"failed: {result.error}"] if result.error else []
    return "\n\n".join(parts) + "\n"


def cell_text(value: Cell) -> str:
    """A cell of a table.

    >>> [cell_text(each) for each in (None, True, 12345, 0.012345, 1234.5)]
    ['', 'yes', '12345', '0.0123', '1234']
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        case _:
            return str(value).replace("|", "/")


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as text.

    >>> ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    spans = list[list[int]]()
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or "none"
