"""The required format of an answer: a JSON schema, a regular expression, or a list of choices. Knows no model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from specchat.errors import UsageError

SCHEMA, REGEX, CHOICES = "schema", "regex", "choices"
FORMAT_KINDS = (SCHEMA, REGEX, CHOICES)


@dataclass(frozen=True)
class AnswerFormat:
    """The format of an answer, as text: a schema in JSON, a regular expression, or a JSON list of choices."""

    kind: str
    text: str

    @classmethod
    def parse(cls, kind: str, value: Any) -> Self:
        """Validate the input of a user, as far as possible without a model; UsageError for invalid input."""
        match kind, value:
            case "schema", dict():
                return cls(kind, json.dumps(value))
            case "schema", str():
                return cls.parse(kind, _parse_schema(value))
            case "regex", str() if value:
                return cls(kind, value)
            case "choices", (list() | tuple()) if value and all(isinstance(text, str) and text for text in value):
                return cls(kind, json.dumps(list(dict.fromkeys(value))))
        expected = {SCHEMA: "a JSON schema, which is an object", REGEX: "a regular expression"}
        raise UsageError(f"{kind}: give {expected.get(kind, 'choices, none of them empty')}")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self | None:
        """The format in these options, if any; UsageError when there are several."""
        named = [kind for kind in FORMAT_KINDS if options.get(kind) not in (None, (), "")]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)}: an answer has one format; give one of them")
        return cls.parse(named[0], options[named[0]]) if named else None

    @property
    def truncated_message(self) -> str:
        return f"the answer was truncated at its limit and does not match the {self.kind}; raise --max-tokens"

    @property
    def value(self) -> Any:
        """The input of `parse`: a schema, an expression, or the choices."""
        return self.text if self.kind == REGEX else json.loads(self.text)

    @property
    def regex(self) -> str:
        return "|".join(re.escape(choice) for choice in self.value) if self.kind == CHOICES else self.text


def _parse_schema(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the schema is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"the schema is a JSON {type(value).__name__}; a schema is an object")
    return value
