"""Finds the tool calls in the streamed text of an answer.

A call is shown as soon as its name is known, and its arguments as the model writes them. The end of the answer inside
a call leaves a call with the arguments so far, because its name was shown already; a call whose name is not known by
then is text. Inside a JSON string, the marker that ends a call is part of the string. Knows texts only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specchat.text.thinking import TEXT, AnswerPart, merge_parts
from specchat.text.tool_formats import ToolFormat

TOOL_CALL = "tool_call"  # a kind of part
NO_SCHEMA: Mapping[str, Any] = {}


class ToolCallParser:
    """Splits the text of one answer into text and calls. `schemas` are those of the arguments, by name of the tool.

    Spaces around calls are dropped. Where a call may have begun, text waits for what follows.
    """

    def __init__(self, tool_format: ToolFormat, schemas: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._format, self._schemas = tool_format, schemas or {}
        self._call: _CallReader | None = None
        self._call_count = 0
        self._text = ""  # not yet shown, because a call may begin in it
        self._is_at_start, self._is_after_call = True, False
        self._pending_space = ""  # after a call: dropped if nothing follows

    def push(self, text: str) -> list[AnswerPart]:
        return merge_parts(self._read(text, is_last=False))

    def flush(self) -> list[AnswerPart]:
        """What was held back, at the end of the answer."""
        return merge_parts(self._read("", is_last=True))

    def _read(self, text: str, *, is_last: bool) -> list[AnswerPart]:
        parts: list[AnswerPart] = []
        while True:
            if self._call is None:
                self._text += text
                if not self._find_call(parts, is_last=is_last):
                    return parts
                text, self._text = self._text, ""
                self._call = _CallReader(self._format, self._call_count, self._schemas)
            parts += self._call.push(text, is_last=is_last)
            if self._call.rest is None:
                return parts
            text, is_call = self._call.rest, self._call.is_call
            self._call_count += is_call
            self._call, self._is_at_start, self._is_after_call = None, False, is_call

    def _find_call(self, parts: list[AnswerPart], *, is_last: bool) -> bool:
        """Show the text before a call; True if one begins, and `_text` is what follows its beginning."""
        while True:
            pattern = _opening_pattern(self._format, self._is_at_start, self._is_after_call)
            match = pattern.search(self._text, partial=not is_last)
            start = match.start() if match else len(self._text)
            self._show_text(parts, self._text[:start])
            if match is None or match.partial:
                self._text = self._text[start:]
                return False
            self._text = self._text[match.end() :]
            self._is_at_start = False
            if match["last"] is None:
                self._pending_space = ""
                return True
            self._is_after_call = False

    def _show_text(self, parts: list[AnswerPart], text: str) -> None:
        if not text:
            return
        self._is_at_start = self._is_at_start and not text.strip()
        self._is_after_call = False
        text = self._pending_space + text
        self._pending_space = text if self._call_count and not text.strip() else ""
        if not self._pending_space:
            parts.append(AnswerPart(TEXT, text))


class _CallReader:
    """Reads one call from behind its beginning. `rest` is the text after it, once it is over."""

    def __init__(self, tool_format: ToolFormat, index: int, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.rest: str | None = None
        self.is_call = False
        self._format, self._index, self._schemas = tool_format, index, schemas
        self._buffer = ""
        self._written = ""  # of an object, without what follows it
        self._schema = NO_SCHEMA
        self._json = _JsonEnd(tool_format.closing)
        self._phase = self._read_header

    def push(self, text: str, *, is_last: bool) -> list[AnswerPart]:
        self._buffer += text
        parts: list[AnswerPart] = []
        while self.rest is None and (read := self._phase(is_last)) is not None:
            parts += read
        return parts

    def _read_header(self, is_last: bool) -> Sequence[AnswerPart] | None:
        match = _compiled(self._format.header).match(self._buffer, partial=not is_last)
        if match is None:
            self._phase = self._read_object
            return ()
        if match.partial:
            return None
        self._buffer = self._buffer[match.end() :]
        self._phase = self._read_other if self._format.read_arguments else self._read_json
        return [self._named(match["name"])]

    def _read_json(self, is_last: bool) -> Sequence[AnswerPart] | None:
        count = self._json.push(self._buffer, is_last=is_last)
        text, self._buffer = self._buffer[:count], self._buffer[count:]
        if self._json.is_over or is_last:
            self._phase, self._json = self._skip_tail, _JsonEnd(self._format.closing, depth=1)
        elif not text:
            return None
        return [self._arguments(text)] if text else ()

    def _read_other(self, is_last: bool) -> Sequence[AnswerPart] | None:
        """Arguments in another form than JSON, when all of them are there."""
        body, closing, rest = self._buffer.partition(self._format.closing)
        if not (closing or is_last):
            return None
        self.rest = rest
        assert self._format.read_arguments is not None
        # What is cut stays as it was written: without its end, it would be read as a call with fewer arguments.
        return [self._arguments(self._format.read_arguments(body, self._schema) if closing else body)]

    def _read_object(self, is_last: bool) -> Sequence[AnswerPart] | None:
        """A call without the usual beginning: a JSON object with its fields in another order, or no call at all."""
        count = self._json.push(self._buffer, is_last=is_last)
        self._written, self._buffer = self._written + self._buffer[:count], self._buffer[count:]
        if not (self._json.is_over or is_last):
            return None
        self._phase = self._end_object
        return ()

    def _end_object(self, is_last: bool) -> Sequence[AnswerPart] | None:
        end = self._format.closing
        tail, closing, rest = self._buffer.partition(end) if end else ("", "", self._buffer)
        if end and not (closing or is_last):
            return None
        self.rest = rest
        try:
            call = json.loads(self._written)
            name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        except (ValueError, TypeError, LookupError, AttributeError):
            return [AnswerPart(TEXT, f"{self._format.marker}{self._written}{tail}{closing}")]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return [self._named(str(name)), self._arguments(text)]

    def _skip_tail(self, is_last: bool) -> Sequence[AnswerPart] | None:
        """What follows the arguments, up to the end of the call."""
        if closing := self._format.closing:
            before, found, rest = self._buffer.partition(closing)
            self._buffer = rest if found else before[-len(closing) + 1 :]
            is_over = bool(found)
        elif self._format.is_object:
            count = self._json.push(self._buffer, is_last=is_last)
            self._buffer, is_over = self._buffer[count:], self._json.is_over
        else:
            is_over = True
        if is_over:
            self.rest = self._buffer
        elif is_last:
            self.rest = ""
        return () if self.rest is not None else None

    def _named(self, name: str) -> AnswerPart:
        self.is_call, self._schema = True, self._schemas.get(name, NO_SCHEMA)
        return AnswerPart(TOOL_CALL, "", self._index, name)

    def _arguments(self, text: str) -> AnswerPart:
        return AnswerPart(TOOL_CALL, text, self._index)


@dataclass(frozen=True)
class JsonPlace:
    """Where in a JSON value a text ends: so many open brackets, in a string or not. The value need not be valid."""

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


class _JsonEnd:
    """Finds the end of a streamed JSON value, which need not be valid. `depth`: so many brackets are open already."""

    def __init__(self, closing: str, depth: int = 0) -> None:
        self.is_over = False
        self._closing, self._place = closing, JsonPlace(depth)
        self._is_started = depth > 0

    def push(self, text: str, *, is_last: bool) -> int:
        """How many characters of the text belong to the value; the others are to be given again with what follows."""
        for at, character in enumerate(text):
            if not self._place.is_in_string and self._closing and character == self._closing[0]:
                rest = text[at : at + len(self._closing)]
                if rest == self._closing:
                    self.is_over = True
                    return at
                if not is_last and self._closing.startswith(rest):
                    return at
            if self._ends_before(character):
                return at
            self._consume(character)
            if self.is_over:
                return at + 1
        return len(text)

    def _ends_before(self, character: str) -> bool:
        """Whether a number or a word, as the whole value, ends before this character."""
        is_outside = self._is_started and not self._place.is_in_string and not self._place.depth
        self.is_over = is_outside and character in ",}] \n\t\r"
        return self.is_over

    def _consume(self, character: str) -> None:
        before, self._place = self._place, self._place.after(character)
        is_bracket = not before.is_in_string and character in "}]"
        ends_string = before.is_in_string and not self._place.is_in_string
        self.is_over = (is_bracket or ends_string) and self._place.depth <= 0
        self._is_started = self._is_started or not character.isspace()


@lru_cache
def _compiled(pattern: str) -> Any:
    """A pattern of the package `regex`, which can tell that a text may be the beginning of a match."""
    import regex

    return regex.compile(pattern, regex.DOTALL)


@lru_cache
def _opening_pattern(tool_format: ToolFormat, is_at_start: bool, is_after_call: bool) -> Any:
    """What may begin a call here. `\\A` is the beginning of the answer, so it counts there only."""
    begin = tool_format.begin if is_at_start else tool_format.begin.replace(r"\A", r"(?!)")
    begins = [begin, *([rf"\A{tool_format.next_call}"] if is_after_call and tool_format.next_call else [])]
    last = rf"\A{tool_format.last}" if is_after_call and tool_format.last else r"(?!)"
    return _compiled(f"(?P<last>{last})|{'|'.join(f'(?:{each})' for each in begins)}")
