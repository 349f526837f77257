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
from specchat.bench.interleaved import SEED, Beside, markdown, total_of
from specchat.chat.answer_format import SCHEMA, Structure
from specchat.chat.request import Request
from specchat.engine.grammar import SOURCE


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


def _list_of(item: Mapping[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": most}


WORD = {"type": "string", "pattern": "^[A-Za-z ]{1,24}$"}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
TASKS: Sequence[tuple[str, Mapping[str, Any]]] = (
    (
        "Return a JSON object with the keys name, age and city for a person of your choice.",
        _object(name=WORD, age=NUMBER, city=WORD),
    ),
    ("Give me a JSON array of five colours.", _list_of(WORD, 5)),
    (
        "List three fruits as a JSON array of objects with name and price.",
        _list_of(_object(name=WORD, price=NUMBER), 3),
    ),
    (
        "Answer in JSON with the keys title, author and year: your favourite book.",
        _object(title=WORD, author=WORD, year=NUMBER),
    ),
    (
        "Return valid JSON that describes a bicycle: brand, gears, weight.",
        _object(brand=WORD, gears=NUMBER, weight=NUMBER),
    ),
    (
        "Answer only with JSON: is the sky blue? Use the keys answer and reason.",
        _object(answer={"type": "boolean"}, reason=WORD),
    ),
    (
        "Give JSON for a user with a name, a role and a list of tags.",
        _object(name=WORD, role={"enum": ["admin", "guest", "editor"]}, tags=_list_of(WORD, 3)),
    ),
    (
        "Describe a file as JSON: path, bytes, readable and writable.",
        _object(path=WORD, bytes=NUMBER, readable={"type": "boolean"}, writable={"type": "boolean"}),
    ),
)


@dataclass
class Row(Beside):
    """One variant, freely or under schemas; plain decoding beside it is of the same kind."""

    is_free: bool
    documents: int = 0  # that are JSON with the keys that were asked for

    @property
    def forced(self) -> float:
        """The share of tokens that were guessed because they could not be otherwise."""
        given = sum(answer.totals.accepted.get(SOURCE, 0) for answer in self.answers)
        return given / max(total_of(self.answers, "tokens"), 1)


def measure(
    engine: Engine, variants: Sequence[str], limit: int, progress: Callable[[str], None] = lambda _what: None
) -> Iterator[Row]:
    """Free rows first, then those under schemas; a variant that cannot run says why."""
    for is_free in (True, False):
        rows = [Row(variant, is_free) for variant in variants]
        for number, (question, schema) in enumerate(TASKS, start=1):
            form = None if is_free else Structure.of(SCHEMA, dict(schema))
            request = Request(question, max_tokens=limit, seed=SEED, temperature=0.0, structure=form)
            for row in rows:
                progress(f"{'free' if is_free else 'under a schema'} {number}/{len(TASKS)} {row.variant}")
                answer = row.take(engine, request)
                row.documents += answer is not None and _is_document(answer.text, schema)
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


def as_table(rows: Sequence[Row]) -> str:
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
    return markdown(head, [_cells(row) for row in rows if not row.refused], rows)


def _cells(row: Row) -> list[str]:
    count = len(row.answers)
    return [
        "free" if row.is_free else "under a schema",
        row.variant,
        f"{row.tokens_per_pass:.2f}",
        f"{row.times_plain:.2f}",
        f"{row.forced:.0%}",
        f"{row.documents} of {count}",
        f"{row.same_text} of {count}",
    ]
