"""What an answer consists of so far: its text, its thought and its calls, as they stream in."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from specchat.chat.events import Event, TextDelta, ThinkingDelta, ToolCallDelta
from specchat.chat.tools import ToolCall
from specchat.text.answer_stream import StreamedParts
from specchat.text.thinking import TEXT, AnswerPart
from specchat.text.tool_calls import TOOL_CALL

CALL_ID_BYTES = 12


class AnswerParts:
    """The parts of one answer. `place` distinguishes it from the other answers of its conversation."""

    def __init__(self, prefix: str, place: str) -> None:
        self.calls = list[ToolCall]()
        self._place = place
        self.text, self.thinking = prefix, ""

    def cut_text(self, length: int) -> None:
        self.text = self.text[:length]

    @property
    def is_thought_alone(self) -> bool:
        return bool(self.thinking) and not (self.text or self.calls)

    def add(self, streamed: StreamedParts) -> Iterator[Event]:
        """Keep what was streamed, and tell it."""
        for part in streamed.parts:
            if part.kind == TOOL_CALL:
                yield from self._add_call(part)
            elif part.kind == TEXT:
                self.text += part.text
                yield TextDelta(part.text)
            else:
                self.thinking += part.text
                yield ThinkingDelta(part.text)

    def _add_call(self, part: AnswerPart) -> Iterator[Event]:
        if part.call_name:
            self.calls.append(ToolCall(self._new_call_id(), part.call_name, ""))
            yield ToolCallDelta(part.call_index, self.calls[-1].id, part.call_name)
        if part.text:
            call = self.calls[-1] = replace(self.calls[-1], arguments=self.calls[-1].arguments + part.text)
            yield ToolCallDelta(part.call_index, call.id, arguments=part.text)

    def _new_call_id(self) -> str:
        """Another one for each call of a conversation. It follows from the seed, because templates may show it."""
        place = f"{self._place} {len(self.calls)}"
        return f"call_{blake2b(place.encode(), digest_size=CALL_ID_BYTES).hexdigest()}"
