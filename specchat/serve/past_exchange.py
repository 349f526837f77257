"""Compares the exchanges of a session with those that a client sends: they are equal when the model reads the same.

Clients give calls other ids, write the arguments anew, and leave white space before a call out. Knows no session.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from specchat.chat.tools import ToolCall, ToolResult
from specchat.chat.transcript import Exchange
from specchat.serve.tool_fields import comparable_arguments

FAILED_EXCHANGE = "\x00"  # stands for an exchange without an answer; in no text of an exchange


@dataclass(frozen=True)
class PastExchange:
    exchange: Exchange

    @cached_property
    def text(self) -> str:
        """The same text for equal exchanges, and one with a long common prefix for those that begin alike."""
        exchange = self.exchange
        calls = [[call.name, comparable_arguments(call.arguments)] for call in exchange.tool_calls]
        answer = exchange.answer.strip() if calls else exchange.answer
        return question_text(exchange.user, exchange.tool_results) + _json([answer, calls])


def question_text(user: str, tool_results: Sequence[ToolResult]) -> str:
    """The beginning of the text of an exchange."""
    return _json([[[result.text, result.is_error] for result in tool_results], user])


def text_of(exchanges: Sequence[PastExchange | None]) -> str:
    return "".join(each.text if each else FAILED_EXCHANGE for each in exchanges)


def common_exchanges(first: Sequence[PastExchange | None], second: Sequence[PastExchange]) -> int:
    """How many exchanges at the beginning are equal."""
    count = 0
    for own, other in zip(first, second, strict=False):
        if own is None or own.text != other.text:
            break
        count += 1
    return count


def with_call_ids(tool_results: Sequence[ToolResult], calls: Sequence[ToolCall]) -> tuple[ToolResult, ...]:
    """The results with the ids of these calls, which have the same order."""
    return tuple(replace(result, call_id=call.id) for result, call in zip(tool_results, calls, strict=True))


def common_prefix_length(first: str, second: str) -> int:
    shorter = range(min(len(first), len(second)))
    return bisect_left(shorter, True, key=lambda index: first[: index + 1] != second[: index + 1])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
