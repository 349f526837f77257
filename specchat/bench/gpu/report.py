"""A report of sections, each of which may fail without stopping the others. It is written to a file after each one.

Knows tables of words and numbers; knows no GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from specchat.bench.columns import markdown_table

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
    for section in sections:
        started_at, lines, error = perf_counter(), list[Line](), ""
        progress(f"{started_at - began_at:.0f} s: {section.name}")
        try:
            _check_limit(began_at, limit_seconds)
            for line in section.measure():
                lines.append(line)
                progress(f"{perf_counter() - began_at:.0f} s: {section.name}: {line.get(NAME)}")
                _check_limit(began_at, limit_seconds)
        except Exception as raised:  # noqa: BLE001 - drivers, compilers of kernels and libraries raise anything
            error = message_of(raised)
        yield SectionResult(section.name, section.explanation, perf_counter() - started_at, tuple(lines), error)


def _check_limit(began_at: float, limit_seconds: float) -> None:
    if perf_counter() - began_at > limit_seconds:
        raise TimeoutError(f"the rest is left out: {limit_seconds:.0f} seconds are over")


def attempt(name: str, measure: Callable[[], Line]) -> Line:
    """A line of a section, or what went wrong there: the next line may succeed."""
    try:
        return {NAME: name, **measure()}
    except Exception as raised:  # noqa: BLE001 - as above
        return {NAME: name, ERROR: message_of(raised)}


def merged(parts: Iterable[Callable[[], Line]]) -> Line:
    """The cells of all parts that succeed, and the message of the first that does not."""
    line = dict[str, Cell]()
    for part in parts:
        try:
            line |= part()
        except Exception as raised:  # noqa: BLE001 - as above
            line.setdefault(ERROR, message_of(raised))
    return line


def message_of(error: Exception) -> str:
    """Its kind and its first line.

    >>> message_of(ValueError("no such row\\nat all"))
    'ValueError: no such row'
    """
    first_line = (str(error).strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {first_line}"


def as_json(results: Iterable[SectionResult]) -> str:
    return json.dumps({"sections": [asdict(each) for each in results]}, indent=1)


def write_report(path: Path, results: Iterable[SectionResult]) -> None:
    path.write_text(as_json(results), encoding="utf-8")


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
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).replace("|", "/")
