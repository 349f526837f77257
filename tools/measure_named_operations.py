"""How well a model names the operation that an instruction is: right, none, or a wrong one; and what becomes of it.

The instructions, in English, German, Spanish and French, are in `tests/refactoring/instructions.toml`. The scripted
models need no engine: the perfect one names the operation of the case, the malicious one each other that is offered.
*reviewed*: it can be done, and a person has to see it; *refused*: by the tree.

    python -m tools.measure_named_operations [--target starter]
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag

import click

from specchat.app.edit_session import EditSession, edit_request
from specchat.app.named_operation import NONE, name_operation, refactoring_of
from specchat.edit.edit_turn import result_of
from specchat.edit.operations import Operation
from specchat.edit.source_text import Source, make_source
from specchat.errors import DeclinedError
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.refactoring import possible_operations
from specchat_bench.columns import markdown_table

INSTRUCTIONS = Path(__file__).parents[1] / "tests" / "refactoring" / "instructions.toml"
WINDOW_TOKENS = 8192
COLUMNS = ("answers", "right", "none", "wrong", "refused", "reviewed")


@dataclass(frozen=True)
class NamedCase:
    """An instruction in a language, and the operation that it is, "" for none."""

    language: str
    instruction: str
    operation: str
    source: Source

    def choices(self) -> dict[str, Operation]:
        return {str(each): each for each in possible_operations(self.source, self.instruction)}

    def fate(self, operation: Operation) -> str:
        """What becomes of an operation that is named: refused or reviewed."""
        try:
            refactoring = refactoring_of(self.source, operation, None)
        except DeclinedError:
            return "refused"
        return "refused" if refactoring.text == self.source.text else "reviewed"


def read_named_cases(path: Path = INSTRUCTIONS) -> list[NamedCase]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    sources = {name: make_source(text.encode(), name) for name, text in tables["files"].items()}
    return [
        NamedCase(language, instruction, case["operation"], sources[case.get("file", "store.py")])
        for case in tables["case"]
        for language, instructions in case["words"].items()
        for instruction in instructions
    ]


def perfect(case: NamedCase) -> Iterator[str]:
    yield case.operation if case.operation in case.choices() else NONE


def malicious(case: NamedCase) -> Iterator[str]:
    yield from (sentence for sentence in case.choices() if sentence != case.operation)


def tally(case: NamedCase, named: str) -> Iterator[str]:
    """The columns in which an answer counts."""
    yield "answers"
    if named == NONE:
        yield "right" if not case.operation else "none"
        return
    yield "right" if named == case.operation else "wrong"
    yield case.fate(case.choices()[named])


def table(rows: Sequence[tuple[str, Counter[str]]]) -> str:
    return markdown_table(
        ["model", "instructions", *COLUMNS],
        [[*name.split(" | "), *(str(counts[column]) for column in COLUMNS)] for name, counts in rows],
    )


@click.command()
@click.option("--target", default="", help="A model, in place of the scripted ones.")
def main(target: str) -> None:
    """Measure how well models name operations."""
    cases, rows = read_named_cases(), dict[str, Counter[str]]()
    with ExitStack() as stack:
        models = {"perfect": perfect, "malicious": malicious}
        if target:
            settings = read_settings(options={"models.target": target})
            request = edit_request(SessionRequest(settings=settings))
            session = stack.enter_context(EditSession(request, Flag()))

            def real(case: NamedCase) -> Iterator[str]:
                naming = name_operation(case.source, case.instruction, WINDOW_TOKENS, session.new_run())
                operation = result_of(naming)
                yield str(operation) if operation else NONE

            models = {target: real}
        for name, model in models.items():
            for case in cases:
                kind = "an operation" if case.operation else "none"
                counts = rows.setdefault(f"{name} | {kind}", Counter())
                for named in model(case) if case.choices() else (NONE,):
                    counts.update(tally(case, named))
                    if target:
                        click.echo(f"{case.language} {case.instruction} -> {named} ({case.operation})", err=True)
    click.echo(table(list(rows.items())))


if __name__ == "__main__":
    main()
