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


def step(done: str, seen: object) -> None:
    print(json.dumps([done, str(seen)]), flush=True)


def refused(call: Callable[[], object], error: type[Exception]) -> str:
    """The error of a call that must fail."""
    try:
        call()
    except error as refusal:
        return f"{type(refusal).__name__}, status {refusal.status_code}"
    raise AssertionError("not refused")


def checked_json(text: str) -> str:
    assert set(json.loads(text)) == set(SCHEMA["properties"]), text
    return text
