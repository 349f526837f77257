"""A table of cases in one test: every row is tried, and all that fail are reported together.

It is for rows that cost milliseconds. A row that loads a model or starts a process is a test of its own, by
`pytest.mark.parametrize`; of those, a default run takes two (the root's conftest.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from tests.cover import SHARE

Test = Callable[..., None]
MOST_OF_A_ROW = 300  # characters of it in a report
PARAM = type(pytest.param())


def each_row(names: str, rows: Iterable[Any] | Callable[[], Iterable[Any]], shares: int = 1) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, as one test. A function makes the rows when the test runs, not at its import.

    The rows of a table that takes seconds are dealt out in shares; a default run has the first one.
    No row meets what another did to `tmp_path`, by `monkeypatch` or on a captured stream; other fixtures are shared.
    """
    arguments = names.replace(",", " ").split()
    table = rows if callable(rows) else list(rows)
    of_full_run = [pytest.param(share, marks=pytest.mark.full) for share in range(1, shares)]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def try_each(**fixtures: Any) -> None:
            share = fixtures.pop(SHARE) if shares > 1 else 0
            all_rows = list(table() if callable(table) else table)[share::shares]
            assert all_rows, "a table without rows proves nothing"
            assert PARAM not in map(type, all_rows), "the marks of pytest.param would be lost"
            failures = list[Exception]()
            for number, row in enumerate(all_rows):
                values = dict(zip(arguments, row if len(arguments) > 1 else [row], strict=True))
                with _own_surroundings(fixtures, number) as own:
                    failures += _failure_of(test, own | values, f"row {number}: {values!r}"[:MOST_OF_A_ROW])
            _report(failures, len(all_rows))

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        if shares == 1:
            try_each.__signature__ = signature.replace(parameters=fixtures)  # for pytest
            return try_each
        share = inspect.Parameter(SHARE, inspect.Parameter.KEYWORD_ONLY)
        try_each.__signature__ = signature.replace(parameters=[*fixtures, share])
        return pytest.mark.parametrize(SHARE, [0, *of_full_run])(try_each)

    return decorate


@contextmanager
def _own_surroundings(fixtures: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = fixtures["tmp_path"] / f"row{number}"
        own["tmp_path"].mkdir()
    for stream in own.keys() & {"capsys", "capfd"}:
        own[stream].readouterr()
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield own | ({"monkeypatch": monkeypatch} if "monkeypatch" in own else {})


def _failure_of(test: Test, arguments: dict[str, Any], title: str) -> list[Exception]:
    try:
        test(**arguments)
    except pytest.skip.Exception as skip:
        failure: Exception = AssertionError(f"a row cannot be skipped: {skip}")
    except pytest.fail.Exception as failed:  # not an Exception, which a group of them needs
        failure = AssertionError(str(failed))
    except Exception as error:  # noqa: BLE001 (whatever a row raises is its failure)
        failure = error
    else:
        return []
    failure.add_note(title)
    return [failure]


def _report(failures: list[Exception], count: int) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {count} rows fail", failures)
