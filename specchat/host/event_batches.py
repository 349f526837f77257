"""The events of an answer on their way: merged into few messages, and added up to the answer so far. No I/O.

The first text of an answer is sent at once; later text and steps are batched for up to 16 ms.
"""

from dataclasses import dataclass, field, replace

from specchat.chat.events import Event, Finished, Routed, StepDone, TextDelta, ThinkingDelta, ToolCallDelta
from specchat.chat.streamed_calls import StreamedCalls
from specchat.history.history_reader import StoredAnswer
from specchat.host.protocol import EVENT_METHODS, JsonObject, RpcNotification, event_to_json

BATCH_SECONDS = 0.016
MAX_BATCH_STEPS = 64  # a full batch is sent at once
MAX_SOURCES = 255  # the source of a token is one byte
TextEvent = TextDelta | ThinkingDelta | ToolCallDelta


class EventBatcher:
    """Merges the events of one turn: consecutive texts of a kind into one text, consecutive steps into one list.

    The arguments of a tool call are a text of their own kind.
    """

    def __init__(self) -> None:
        self._pending_text: list[str] = []
        self._text_event: TextEvent = TextDelta("")  # the first one of the pending text
        self._pending_steps: list[JsonObject] = []
        self._last_text_at = float("-inf")

    def add(self, event: Event, now: float) -> list[RpcNotification]:
        match event:
            case TextDelta() | ThinkingDelta():
                return self._add_text(event, event.text, now)
            case ToolCallDelta(arguments=arguments) if not event.name:
                return self._add_text(event, arguments, now)
            case StepDone():
                self._pending_steps += event_to_json(event)["steps"]
            case _:
                return [*self._flush(now), RpcNotification(EVENT_METHODS[type(event)], event_to_json(event))]
        return self.take_due(now)

    def _add_text(self, event: TextEvent, text: str, now: float) -> list[RpcNotification]:
        """What is due. When the kind of text changes, what is pending keeps its place before the new text."""
        is_other_kind = bool(self._pending_text) and _kind_of(event) != _kind_of(self._text_event)
        due = self._flush(now) if is_other_kind else []
        self._text_event = event
        self._pending_text.append(text)
        return [*due, *self.take_due(now)]

    def due_at(self) -> float | None:
        """When `take_due` has something to return; None when nothing is pending."""
        if len(self._pending_steps) >= MAX_BATCH_STEPS:
            return self._last_text_at
        return self._last_text_at + BATCH_SECONDS if self._pending_text or self._pending_steps else None

    def take_due(self, now: float) -> list[RpcNotification]:
        due = self.due_at()
        return self._flush(now) if due is not None and due <= now else []

    def _flush(self, now: float) -> list[RpcNotification]:
        notifications = []
        if self._pending_steps:
            notifications.append(RpcNotification("steps", {"steps": self._pending_steps}))
        if self._pending_text:
            notifications.append(_text_notification(self._text_event, "".join(self._pending_text)))
            self._last_text_at = now  # steps without text (an incomplete character) do not delay the first text
        self._pending_text, self._pending_steps = [], []
        return notifications


def _kind_of(event: TextEvent) -> tuple[type, int]:
    return type(event), event.index if isinstance(event, ToolCallDelta) else 0


def _text_notification(event: TextEvent, text: str) -> RpcNotification:
    changed = replace(event, arguments=text) if isinstance(event, ToolCallDelta) else replace(event, text=text)
    return RpcNotification(EVENT_METHODS[type(event)], event_to_json(changed))


@dataclass
class PartialAnswer:
    calls: StreamedCalls = field(default_factory=StreamedCalls)
    text_parts: list[str] = field(default_factory=list)
    thinking_parts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    source_indices: bytearray = field(default_factory=bytearray)
    sources: list[str] = field(default_factory=list)
    routed: Routed | None = None

    def on_event(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self.text_parts.append(text)
            case ThinkingDelta(text=text):
                self.thinking_parts.append(text)
            case ToolCallDelta():
                self.calls.add(event)
            case StepDone(committed_tokens=committed):
                for token in committed:
                    self.token_ids.append(token.token_id)
                    self.source_indices.append(self._source_index(token.source))
            case Routed():
                self.routed = event
            case Finished() if event.totals.repeated_tokens:
                self.text_parts = [event.without_repeats("".join(self.text_parts))]
                del self.token_ids[event.totals.completion_tokens :]
                del self.source_indices[event.totals.completion_tokens :]
            case _:
                pass

    def to_stored(self) -> StoredAnswer:
        variant, seed = (self.routed.variant, self.routed.seed) if self.routed else ("", None)
        return StoredAnswer(
            "".join(self.text_parts),
            tuple(self.token_ids),
            bytes(self.source_indices),
            tuple(self.sources),
            variant,
            seed,
            thinking="".join(self.thinking_parts),
            tool_calls=tuple(self.calls),
        )

    def _source_index(self, source: str) -> int:
        if source not in self.sources and len(self.sources) < MAX_SOURCES:
            self.sources.append(source)
        return self.sources.index(source) if source in self.sources else MAX_SOURCES
