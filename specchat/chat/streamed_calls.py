"""Puts the tool calls of an answer together from its events. Knows no engine, no screen and no API."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from specchat.chat.events import ToolCallDelta
from specchat.chat.tools import ToolCall


@dataclass
class StreamedCalls:
    """The tool calls of one answer in the order of their beginning, as far as they have come."""

    _calls: dict[int, ToolCall] = field(default_factory=dict[int, ToolCall])

    def add(self, delta: ToolCallDelta) -> None:
        call = self._calls.get(delta.index, ToolCall(delta.id, "", ""))
        arguments = call.arguments + delta.arguments
        self._calls[delta.index] = replace(call, name=call.name or delta.name, arguments=arguments)

    def __iter__(self) -> Iterator[ToolCall]:
        return iter(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)
