"""Forced tool calls on a model: how many are valid against their schema, per kind of schema and temperature.

    python -m tools.forced_calls --target starter --count 200

Each call is a conversation of its own. The tool is forced by its name, or one of three must be called. The arguments
are checked by `jsonschema`, which knows nothing of the grammar that made them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from specchat.chat.events import Failed, Finished
from specchat.chat.request import Request
from specchat.chat.session import Session
from specchat.chat.tools import SOME_TOOL, Tool
from specchat.loading.load_engine import load_engine
from specchat.profile.profile_files import load_profile

TEMPERATURES = (0.0, 0.8)
MAX_TOKENS = 256
QUESTIONS = ("Please call a tool for me.", "What is the weather in Paris today?", "Add a task: buy milk for Anna.")


def _object(required: Sequence[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required or properties)}


TREE = _object(name={"type": "string"}, children={"type": "array", "items": {"$ref": "#/$defs/tree"}})
EXPRESSION = {
    "anyOf": [
        {"type": "integer"},
        _object(
            operator={"enum": ["+", "-"]}, left={"$ref": "#/$defs/expression"}, right={"$ref": "#/$defs/expression"}
        ),
    ]
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "no arguments": _object(),
    "a string": _object(city={"type": "string"}),
    "an optional string": {"type": "object", "properties": {"path": {"type": "string"}}},
    "an enum": _object(unit={"enum": ["celsius", "fahrenheit", "kelvin"]}, day={"enum": [1, 2, 3, None, True]}),
    "numbers with limits": _object(
        count={"type": "integer", "minimum": 3, "maximum": 17}, share={"type": "number", "minimum": 0, "maximum": 1}
    ),
    "strings with limits": _object(
        code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        name={"type": "string", "minLength": 2, "maxLength": 9},
    ),
    "an array": _object(tags={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4}),
    "an open array": _object(numbers={"type": "array", "items": {"type": "number"}}),
    "nested objects": _object(
        user=_object(name={"type": "string"}, address=_object(street={"type": "string"}, number={"type": "integer"})),
        active={"type": "boolean"},
    ),
    "objects in an array": _object(
        tasks={"type": "array", "items": _object(title={"type": "string"}, done={"type": "boolean"}), "minItems": 1}
    ),
    "a choice of types": _object(value={"anyOf": [{"type": "integer"}, {"type": "null"}, {"enum": ["all"]}]}),
    "a recursive object": {**_object(root={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}},
    "a recursive choice": {**_object(value={"$ref": "#/$defs/expression"}), "$defs": {"expression": EXPRESSION}},
}
TOOLS = tuple(
    Tool(f"tool_{number}", f"Takes {kind}.", json.dumps(schema))
    for number, (kind, schema) in enumerate(SCHEMAS.items())
)


@dataclass(frozen=True)
class ForcedCall:
    """What came of one request; `fault` is "" for a valid call."""

    kind: str
    temperature: float
    tokens: int
    fault: str


def forced_call(session: Session, number: int) -> ForcedCall:
    """Ask for the call with this number: every schema in turn, each second time by "required", at each temperature."""
    at, round_ = number % len(TOOLS), number // len(TOOLS)
    temperature, is_required = TEMPERATURES[round_ % 2], round_ // 2 % 2
    offered = [TOOLS[(at + step) % len(TOOLS)] for step in range(3)]
    request = Request(
        QUESTIONS[number % len(QUESTIONS)], tools=tuple(offered), temperature=temperature, seed=number,
        max_tokens=MAX_TOKENS, tool_choice=SOME_TOOL if is_required else offered[0].name,
    )  # fmt: skip
    end = list(session.ask(request))[-1]
    allowed = [tool.name for tool in (offered if is_required else offered[:1])]
    tokens = end.totals.completion_tokens if isinstance(end, Finished) else 0
    return ForcedCall(list(SCHEMAS)[at], temperature, tokens, _fault(session, end, allowed))


def _fault(session: Session, end: Any, allowed: Sequence[str]) -> str:
    if isinstance(end, Failed) or end.finish_reason != "tool_calls":
        return end.message if isinstance(end, Failed) else f"the answer ended by {end.finish_reason}"
    turn = session.turns[-1]
    if len(turn.tool_calls) != 1 or turn.answer:
        return f"{len(turn.tool_calls)} calls and the text {turn.answer!r}"
    (call,) = turn.tool_calls
    if call.name not in allowed:
        return f"it calls {call.name}"
    try:
        schema = next(tool.schema for tool in TOOLS if tool.name == call.name)
        jsonschema.Draft202012Validator(schema).validate(json.loads(call.arguments))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{call.arguments}: {str(error).splitlines()[0]}"
    return ""


def forced_calls(target: str, count: int) -> list[ForcedCall]:
    profile = load_profile("chat").override({"models.target": target, "models.draft": "", "models.heads": ()})
    engine = load_engine(profile)
    calls: list[ForcedCall] = []
    for number in range(count):
        with engine.create_session() as session:
            calls.append(forced_call(session, number))
    return calls


def table(calls: Sequence[ForcedCall]) -> str:
    """Valid calls of all calls, for each schema and temperature, in Markdown."""
    lines = ["| schema | greedy | T 0.8 | tokens |", "|---|---|---|---|"]
    for kind in (*SCHEMAS, "all"):
        chosen = [call for call in calls if kind in (call.kind, "all")]
        cells = [_valid([call for call in chosen if call.temperature == each]) for each in TEMPERATURES]
        tokens = sum(call.tokens for call in chosen) / max(1, len(chosen))
        lines.append(f"| {kind} | {' | '.join(cells)} | {tokens:.0f} |")
    return "\n".join(lines)


def _valid(calls: Sequence[ForcedCall]) -> str:
    return f"{sum(not call.fault for call in calls)} of {len(calls)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="starter")
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    calls = forced_calls(arguments.target, arguments.count)
    print(table(calls))
    faults = [call for call in calls if call.fault]
    for call in faults:
        print(f"{call.kind}, T {call.temperature}: {call.fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
