"""What the scripts of SDKs share: their arguments, and a line of JSON for each step. Needs no other package."""

import json
import sys
from collections.abc import Callable

ADDRESS, TOKEN, QUESTION = sys.argv[1:]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
AREA = {
    "type": "object",
    "properties": {"width": {"type": "integer"}, "height": {"type": "integer"}},
    "required": ["width", "height"],
}


def step(done: str, seen: object) -> None:
    print(json.dumps([done, str(seen)]), flush=True)


def attempt(done: str, call: Callable[[], object]) -> None:
    """A step that may fail while the next one still runs."""
    try:
        step(done, call())
    except Exception as error:  # noqa: BLE001 (a package fails in any way)
        print(json.dumps([done, f"**failed**: {type(error).__name__}: {str(error)[:300]}", False]), flush=True)


def refused(call: Callable[[], object], error: type[Exception]) -> str:
    """The error of a call that must fail."""
    try:
        call()
    except error as refusal:
        return f"{type(refusal).__name__}, status {refusal.status_code}"
    raise AssertionError("not refused")


def checked_json(text: str, schema: dict[str, object] = SCHEMA) -> str:
    assert set(json.loads(text)) == set(schema["required"]), text
    return text


def area(arguments: dict[str, int]) -> str:
    """The tool `area`, with the arguments of a call."""
    return str(arguments["width"] * arguments["height"])


def checked_answer(text: str) -> str:
    """The answer after the result of the tool."""
    assert text == "It is 12.", text
    return f"called, answered: {text}"
