"""Where in a JSON value a text ends: so many open brackets, in a string or not. The value need not be valid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JsonPlace:
    depth: int = 0  # open brackets
    is_in_string: bool = False
    is_escaped: bool = False  # a backslash comes before the next character

    def after(self, text: str) -> JsonPlace:
        """The place behind some more text. A byte counts as a character here: all that matters is ASCII."""
        depth, is_in_string, is_escaped = self.depth, self.is_in_string, self.is_escaped
        for character in text:
            if character == '"' and not is_escaped:
                is_in_string = not is_in_string
            elif not is_in_string:
                depth += (character in "{[") - (character in "}]")
            is_escaped = character == "\\" and is_in_string and not is_escaped
        return JsonPlace(depth, is_in_string, is_escaped)
