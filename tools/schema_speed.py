"""How fast drafters are in JSON answers: eight questions, asked freely and under the schema of each.

python -m tools.schema_speed --target TARGET --drafters auto,suffix,eagle3 --threads 1
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from specchat.chat.request import SCHEMA, AnswerFormat, Request
from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.profile.drafter_names import all_drafters
from specchat_bench.columns import as_table, group_samples
from specchat_bench.combinations import Combination, Grid
from specchat_bench.command_options import ALL, complete_drafters, parse_names
from specchat_bench.drafters_command import temperatures_option
from specchat_bench.latency import TimedAnswer
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.measure import (
    MeasureRequest,
    collect_until_interrupt,
    engine_measurer,
    run_combinations,
    set_thread_count,
    split_by_availability,
)
from specchat_bench.sample_store import SampleStore
from tools.instrument import run_instrument

COLUMNS = (
    "kind", "temperature", "drafter", "answers", "tokens_per_second", "speedup", "tokens_per_step", "forced_share",
    "identical",
)  # fmt: skip

FREE_KIND, SCHEMA_KIND = "structured", "schema"


def _object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def _array_schema(item: Mapping[str, Any], max_items: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": max_items}


WORD_SCHEMA = {"type": "string", "pattern": "^[A-Za-z ]{1,24}$"}
NUMBER_SCHEMA = {"type": "integer", "minimum": 0, "maximum": 9999}
SCHEMA_TASKS: Sequence[tuple[str, Mapping[str, Any]]] = (
    (
        "Return a JSON object with the keys name, age and city for a person of your choice.",
        _object_schema(name=WORD_SCHEMA, age=NUMBER_SCHEMA, city=WORD_SCHEMA),
    ),
    ("Give me a JSON array of five colours.", _array_schema(WORD_SCHEMA, 5)),
    (
        "List three fruits as a JSON array of objects with name and price.",
        _array_schema(_object_schema(name=WORD_SCHEMA, price=NUMBER_SCHEMA), 3),
    ),
    (
        "Answer in JSON with the keys title, author and year: your favourite book.",
        _object_schema(title=WORD_SCHEMA, author=WORD_SCHEMA, year=NUMBER_SCHEMA),
    ),
    (
        "Return valid JSON that describes a bicycle: brand, gears, weight.",
        _object_schema(brand=WORD_SCHEMA, gears=NUMBER_SCHEMA, weight=NUMBER_SCHEMA),
    ),
    (
        "Answer only with JSON: is the sky blue? Use the keys answer and reason.",
        _object_schema(answer={"type": "boolean"}, reason=WORD_SCHEMA),
    ),
    (
        "Give JSON for a user with a name, a role and a list of tags.",
        _object_schema(
            name=WORD_SCHEMA, role={"enum": ["admin", "guest", "editor"]}, tags=_array_schema(WORD_SCHEMA, 3)
        ),
    ),
    (
        "Describe a file as JSON: path, bytes, readable and writable.",
        _object_schema(
            path=WORD_SCHEMA, bytes=NUMBER_SCHEMA, readable={"type": "boolean"}, writable={"type": "boolean"}
        ),
    ),
)


def schema_requests() -> dict[str, list[Request]]:
    """The questions as two kinds of prompts: without and with their schema."""
    free = [Request(question) for question, _schema in SCHEMA_TASKS]
    constrained = [
        replace(request, answer_format=AnswerFormat.parse(SCHEMA, dict(schema)))
        for request, (_question, schema) in zip(free, SCHEMA_TASKS, strict=True)
    ]
    return {FREE_KIND: free, SCHEMA_KIND: constrained}


def counting_documents(measure: MeasureRequest, documents: Counter[str]) -> MeasureRequest:
    """The same measurements; the answers that are JSON with the keys of their task are counted by kind."""

    def measured(request: Request, combination: Combination) -> TimedAnswer:
        answer = measure(request, combination)
        kind = SCHEMA_KIND if request.answer_format else FREE_KIND
        documents[f"{kind} answers"] += 1
        documents[f"{kind} documents"] += is_valid_document(request.text, answer.text)
        return answer

    return measured


def is_valid_document(question: str, text: str) -> bool:
    """Whether an answer is JSON with the keys of its task."""
    schema = dict(SCHEMA_TASKS)[question]
    try:
        document = json.loads(text)
    except ValueError:
        return False
    if schema["type"] == "array":
        return isinstance(document, list)
    return isinstance(document, dict) and set(document) == set(schema["properties"])


@click.command("schema_speed")
@click.option(
    "--drafters", "names", default=ALL, show_default=True, help="Drafters, separated by commas; auto is one.",
    shell_complete=complete_drafters,
)  # fmt: skip
@temperatures_option
@click.option("--count", default=len(SCHEMA_TASKS), show_default=True, help="Number of questions.")
@click.option("--limit", default=120, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@profile_options
def schemas(names: str, temperatures: tuple[float, ...], count: int, limit: int, threads: int, **options: Any) -> int:
    """Measure drafters in JSON answers beside plain decoding. Ctrl-C ends it with the samples so far."""
    chosen, documents = parse_names("drafter", names, all_drafters()), Counter[str]()
    engine = load_engine_here(resolve_profile(options))
    set_thread_count(threads)
    runnable, skipped = split_by_availability(engine, chosen)
    for reason in skipped.values():
        print_note(reason)
    grid, measure = Grid(runnable, temperatures=temperatures, max_tokens=limit), engine_measurer(engine)
    samples = run_combinations(
        counting_documents(measure, documents), grid, schema_requests(), count, SampleStore(), print_note
    )
    collected = collect_until_interrupt(samples)
    click.echo(as_table(group_samples(collected.samples, grid), COLUMNS))
    click.echo(", ".join(f"{name}: {number}" for name, number in documents.items()))
    return 0 if collected.is_complete else INTERRUPTED_EXIT_CODE


if __name__ == "__main__":
    sys.exit(run_instrument(schemas))
