"""What a prescribed form costs and brings: the same questions asked freely and under a JSON schema.

Under a schema what must come is guessed for nothing, and what may not come costs no row; a free answer can be anything.
Each is compared with plain decoding of its own kind, in turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specchat.assemble import Engine
from specchat.bench.interleaved import SEED, VariantRow, table_with_skipped, total_of
from specchat.chat.answer_format import SCHEMA, AnswerFormat
from specchat.chat.request import Request
from specchat.engine.grammar import GRAMMAR_SOURCE


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


@dataclass
class StructuredRow(VariantRow):
    """One variant, freely or under schemas; plain decoding beside it is of the same kind."""

    has_no_schema: bool
    valid_documents: int = 0  # that are JSON with the keys that were asked for

    @property
    def forced_token_share(self) -> float:
        """The share of tokens that were guessed because they could not be otherwise."""
        given = sum(answer.totals.accepted_by_drafter.get(GRAMMAR_SOURCE, 0) for answer in self.answers)
        return given / max(total_of(self.answers, "tokens"), 1)


def measure_structured(
    engine: Engine, variants: Sequence[str], max_tokens: int, progress: Callable[[str], None] = lambda _what: None
) -> Iterator[StructuredRow]:
    """Free rows first, then those under schemas; a variant that cannot run says why."""
    for is_free in (True, False):
        rows = [StructuredRow(variant, is_free) for variant in variants]
        for number, (question, schema) in enumerate(SCHEMA_TASKS, start=1):
            form = None if is_free else AnswerFormat.parse(SCHEMA, dict(schema))
            request = Request(question, max_tokens=max_tokens, seed=SEED, temperature=0.0, answer_format=form)
            for row in rows:
                progress(f"{'free' if is_free else 'under a schema'} {number}/{len(SCHEMA_TASKS)} {row.variant}")
                answer = row.measure(engine, request)
                row.valid_documents += answer is not None and _is_document(answer.text, schema)
        yield from rows


def _is_document(text: str, schema: Mapping[str, Any]) -> bool:
    """JSON of the right kind, with the keys that were asked for."""
    try:
        document = json.loads(text)
    except ValueError:
        return False
    if schema["type"] == "array":
        return isinstance(document, list)
    return isinstance(document, dict) and set(document) == set(schema["properties"])


def as_table(rows: Sequence[StructuredRow]) -> str:
    """Rows as Markdown."""
    head = [
        "decoding",
        "variant",
        "tokens per pass",
        "x plain of the same decoding",
        "forced",
        "documents",
        "same text",
    ]
    return table_with_skipped(head, [_cells(row) for row in rows if not row.skip_reason], rows)


def _cells(row: StructuredRow) -> list[str]:
    count = len(row.answers)
    return [
        "free" if row.has_no_schema else "under a schema",
        row.variant,
        f"{row.tokens_per_step:.2f}",
        f"{row.speedup:.2f}",
        f"{row.forced_token_share:.0%}",
        f"{row.valid_documents} of {count}",
        f"{row.identical_answers} of {count}",
    ]
