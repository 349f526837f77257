"""Turns the streamed tokens of an answer into its parts, thinking, text and tool calls, as early as possible.

Stop strings count in the text only. The blocks in which tokens arrive change nothing. Knows a tokenizer and no model.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specchat.text.detokenize import StopStrings
from specchat.text.thinking import TEXT, AnswerPart, PartParser, merge_parts
from specchat.text.tokenizer import Tokenizer
from specchat.text.tool_calls import TOOL_CALL, ToolCallParser

NO_TOKENS = frozenset[int]()
BEGINNING = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*"')
CHARACTERS = re.compile(  # of a string, without an escape of which the end is still to come
    r"""(?:[^"\\]
        |\\["\\/bfnrt]
        |\\u(?![dD][89abAB])[0-9a-fA-F]{4}
        |\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]|\\[^u]))  # a pair, or half of one
        )*""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class StreamedParts:
    """The parts that a block of tokens released, and how many of its tokens count. A stop string may have ended it.

    `thinking_tokens` are those of the thought and its markers.
    """

    parts: Sequence[AnswerPart] = ()
    token_count: int = 0
    is_stopped: bool = False
    thinking_tokens: int = 0


class AnswerStream:
    """Decodes one answer. `opens_thought`: the prompt ends inside a thought.

    `tool_schemas` are the schemas of the tools by name, if the answer may call tools. A call of `answer_tool` is the
    text that its argument says.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...] = (),
        *,
        is_continuation: bool,
        opens_thought: bool = False,
        tool_schemas: Mapping[str, Mapping[str, Any]] | None = None,
        answer_tool: str = "",
    ) -> None:
        thinking = None if is_continuation else tokenizer.chat.thinking
        self._parser = PartParser(thinking, is_open=opens_thought) if thinking else None
        self._calls = ToolCallParser(tokenizer.chat.tool_format, tool_schemas) if tool_schemas else None
        markers = (tokenizer.chat.thinking_token_ids if thinking else NO_TOKENS) | (
            tokenizer.chat.tool_token_ids if tool_schemas else NO_TOKENS
        )
        self._detokenizer = tokenizer.detokenizer(is_continuation=is_continuation, shown_markers=markers)
        self._stop = StopStrings(stop)
        self._answer_tool = answer_tool
        self._answer_text: TextArgument | None = None  # of the call that is an answer

    def push(self, ids: Sequence[int]) -> StreamedParts:
        """Decode a block of tokens. The token that completes a stop string is the last that counts."""
        if self._stop.is_found or not ids:
            return StreamedParts(is_stopped=self._stop.is_found)
        parts: list[AnswerPart] = []
        thinking_tokens = 0
        for count, token in enumerate(ids, 1):
            was_thinking = self._is_thinking
            parts += self._split(self._detokenizer.push([token]))
            thinking_tokens += was_thinking or self._is_thinking
            if self._stop.is_found:
                return StreamedParts(merge_parts(parts), count, True, thinking_tokens)
        return StreamedParts(merge_parts(parts), len(ids), False, thinking_tokens)

    def flush(self) -> StreamedParts:
        """What was held back, at the end of the answer."""
        if self._stop.is_found:
            return StreamedParts()
        parts = self._split(self._detokenizer.flush())
        parts += self._without_stops(self._find_calls(self._parser.flush())) if self._parser else []
        parts += self._without_stops(self._answer_as_text(self._calls.flush())) if self._calls else []
        if rest := self._stop.flush():
            parts.append(AnswerPart(TEXT, rest))
        return StreamedParts(merge_parts(parts))

    @property
    def _is_thinking(self) -> bool:
        return self._parser is not None and self._parser.is_thinking

    def _split(self, text: str) -> list[AnswerPart]:
        parts = self._parser.push(text) if self._parser else [AnswerPart(TEXT, text)]
        return self._without_stops(self._find_calls(parts))

    def _find_calls(self, parts: Sequence[AnswerPart]) -> list[AnswerPart]:
        """The parts with the calls in their texts."""
        if self._calls is None:
            return list(parts)
        found = [each for part in parts for each in (self._calls.push(part.text) if part.kind == TEXT else [part])]
        return self._answer_as_text(found)

    def _answer_as_text(self, parts: Sequence[AnswerPart]) -> list[AnswerPart]:
        """The parts with a call of the tool that answers as text."""
        shown: list[AnswerPart] = []
        for part in parts:
            if part.call_name:
                self._answer_text = TextArgument() if part.call_name == self._answer_tool else None
            reader = self._answer_text if part.kind == TOOL_CALL else None
            shown.append(AnswerPart(TEXT, reader.push(part.text)) if reader else part)
        return shown

    def _without_stops(self, parts: Sequence[AnswerPart]) -> list[AnswerPart]:
        texts = [part if part.kind != TEXT else AnswerPart(TEXT, self._stop.push(part.text)) for part in parts]
        return [part for part in texts if part.text or part.call_name]


class TextArgument:
    """The first string of a JSON object, piece by piece: of {"text": "…"} the text."""

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
