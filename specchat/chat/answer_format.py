"""What form an answer must have: a JSON schema, a regular expression, or one of a few texts. Knows no model."""

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
    """The form of an answer, as text: a schema as JSON, an expression, or a JSON list of the texts to choose from."""

    kind: str
    text: str

    @classmethod
    def parse(cls, kind: str, value: Any) -> Self:
        """What a user wrote, checked as far as it can be without a model; UsageError says what is wrong with it."""
        match kind, value:
            case "schema", dict():
                return cls(kind, json.dumps(value))
            case "schema", str():
                return cls.parse(kind, _parse_schema(value))
            case "regex", str() if value:
                return cls(kind, value)
            case "choices", (list() | tuple()) if value and all(isinstance(text, str) and text for text in value):
                return cls(kind, json.dumps(list(dict.fromkeys(value))))
        wanted = {SCHEMA: "a JSON schema, which is an object", REGEX: "a regular expression"}
        raise UsageError(f"{kind}: give {wanted.get(kind, 'texts to choose from, none of them empty')}")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self | None:
        """The one form that is given; UsageError when there are two."""
        named = [kind for kind in FORMAT_KINDS if options.get(kind) not in (None, (), "")]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)}: an answer has one form; give one of them")
        return cls.parse(named[0], options[named[0]]) if named else None

    @property
    def truncated_message(self) -> str:
        """What to tell somebody whose answer was cut at its limit, so that it lacks its end."""
        return f"the answer was cut at its limit, and is not what the {self.kind} asks for; raise --max-tokens"

    @property
    def value(self) -> Any:
        """What `of` makes this of: a schema, an expression, or the texts to choose from."""
        return self.text if self.kind == REGEX else json.loads(self.text)

    @property
    def regex(self) -> str:
        """A regular expression for choices and for expressions."""
        return "|".join(re.escape(choice) for choice in self.value) if self.kind == CHOICES else self.text


def _parse_schema(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the schema is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"the schema is a JSON {type(value).__name__}; a schema is an object")
    return value
