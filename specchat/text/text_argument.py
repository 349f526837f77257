"""Reads the text out of the streamed arguments of a call: of {"text": "…"} the string. Knows no tool."""

from __future__ import annotations

import json
import re

BEGINNING = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*"')
CHARACTERS = re.compile(  # of a string, without an escape of which the end is still to come
    r"""(?:[^"\\]
        |\\["\\/bfnrt]
        |\\u(?![dD][89abAB])[0-9a-fA-F]{4}
        |\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]|\\[^u]))  # a pair, or half of one
        )*""",
    re.VERBOSE,
)


class TextArgument:
    """The first string of a JSON object, piece by piece."""

    def __init__(self) -> None:
        self._pending, self._has_begun = "", False

    def push(self, arguments: str) -> str:
        """The text that these further characters of the arguments complete."""
        self._pending += arguments
        if not self._has_begun:
            if (beginning := BEGINNING.match(self._pending)) is None:
                return ""
            self._pending, self._has_begun = self._pending[beginning.end() :], True
        written = CHARACTERS.match(self._pending)
        assert written is not None
        self._pending = self._pending[written.end() :]
        text = json.loads(f'"{written.group()}"', strict=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
