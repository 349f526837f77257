"""Tools that a model may call: what a client offers, what the model called, and what came of it.

Values only. Who runs a tool, and whether it may run, is not known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specchat.chat.schema_check import check_ends
from specchat.errors import UsageError

NO_PARAMETERS = '{"type": "object", "properties": {}}'
ANY_TOOL, NO_TOOL, SOME_TOOL = TOOL_CHOICES = ("auto", "none", "required")  # else the name of a tool, which is forced
CALL_OR_ANSWER = "call_or_answer"  # as "auto"; of a model that needs a grammar to call, one or the other
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True)
class Tool:
    """A tool that a client offers. `parameters` is the JSON schema of its arguments, an object, as JSON text."""

    name: str
    description: str = ""
    parameters: str = NO_PARAMETERS

    @classmethod
    def parse(cls, name: Any, description: Any, parameters: Any) -> Tool:
        """A tool from the JSON of a client; UsageError names what is wrong."""
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
            raise UsageError(f"tool {name!r}: a name has 1 to 128 letters, digits and _ . : / -")
        if not isinstance(description, str | None):
            raise UsageError(f"tool {name}: its description must be a text")
        if not isinstance(parameters, dict | None):
            raise UsageError(f"tool {name}: its parameters must be a JSON schema, which is an object")
        if not parameters:
            return cls(name, description or "")
        check_ends(parameters)
        return cls(name, description or "", json.dumps(parameters))

    @property
    def schema(self) -> dict[str, Any]:
        return json.loads(self.parameters)

    def to_template(self) -> Mapping[str, Any]:
        """As chat templates read it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """A call by the model. `arguments` is JSON text as the model wrote it, which may be invalid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned, for the next turn. `name` is that of the tool; `call_id` the id of its call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
