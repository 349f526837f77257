"""What a session tells: events merged into few lines, numbered, and kept for those who come late.

The first text of a turn goes out at once, later text and steps wait for each other up to 16 ms. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specchat.chat.events import Event, Routed, StepDone, Text
from specchat.chat.history import Answered
from specchat.host.protocol import NAMES, Json, Notice, encode, event_to_json

MERGE_SECONDS = 0.016
MERGE_STEPS = 64  # more of them wait for nobody
KEPT_BYTES = 4 * 2**20
MAX_SOURCES = 255  # one byte says who guessed a token


class Merger:
    """Events of one turn in, notices out; neighbouring texts become one text, neighbouring steps one batch."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._steps: list[Json] = []
        self._told = float("-inf")

    def add(self, event: Event, now: float) -> list[Notice]:
        """The notices that are due with this event."""
        match event:
            case Text(text=text):
                self._text.append(text)
            case StepDone():
                self._steps += event_to_json(event)["steps"]
            case _:
                return [*self._rest(now), Notice(NAMES[type(event)], event_to_json(event))]
        return self.take(now)

    def due(self) -> float | None:
        """When `take` would bring something, None when nothing waits."""
        if len(self._steps) >= MERGE_STEPS:
            return self._told
        return self._told + MERGE_SECONDS if self._text or self._steps else None

    def take(self, now: float) -> list[Notice]:
        """What has waited long enough."""
        due = self.due()
        return self._rest(now) if due is not None and due <= now else []

    def _rest(self, now: float) -> list[Notice]:
        notices = []
        if self._steps:
            notices.append(Notice("steps", {"steps": self._steps}))
        if self._text:
            notices.append(Notice("text", {"text": "".join(self._text)}))
            self._told = now  # steps alone (a token without a whole character) do not hold up the first text
        self._text, self._steps = [], []
        return notices


@dataclass
class AnswerSoFar:
    """What the events of a turn have said up to now, as the history keeps it."""

    text: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    sources: list[str] = field(default_factory=list)
    routed: Routed | None = None

    def note(self, event: Event) -> None:
        """Hear one more event."""
        match event:
            case Text(text=text):
                self.text.append(text)
            case StepDone(committed=committed):
                for token in committed:
                    self.ids.append(token.id)
                    self.kinds.append(self._kind(token.source))
            case Routed():
                self.routed = event
            case _:
                pass

    def answered(self) -> Answered:
        """The value that is stored."""
        variant, seed = (self.routed.variant, self.routed.seed) if self.routed else ("", None)
        return Answered("".join(self.text), tuple(self.ids), bytes(self.kinds), tuple(self.sources), variant, seed)

    def _kind(self, source: str) -> int:
        if source not in self.sources and len(self.sources) < MAX_SOURCES:
            self.sources.append(source)
        return self.sources.index(source) if source in self.sources else MAX_SOURCES


@dataclass(frozen=True)
class Line:
    """One line of a session. `only` names the listener it is for, None means everyone."""

    number: int
    text: bytes
    end: int  # bytes of the feed up to here
    only: object = None


class Feed:
    """The lines of a session in order. The last ones stay, so that a listener who lost touch can hear them again."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.bytes = 0
        self.next = 1
        self.listeners = 0
        self._lines: list[Line] = []

    def tell(self, turn: str | None, notice: Notice) -> None:
        """Append an event for everyone."""
        params = {"session": self.session, "turn": turn, "number": self.next, **notice.params}
        self.append(encode(Notice(notice.method, params)))

    def append(self, text: bytes, only: object = None) -> None:
        """Append a line, and forget the oldest ones over the limit."""
        self.bytes += len(text)
        self._lines.append(Line(self.next, text, self.bytes, only))
        self.next += 1
        if self.bytes - self._lines[0].end > 2 * KEPT_BYTES:
            oldest = next(at for at, line in enumerate(self._lines) if self.bytes - line.end <= KEPT_BYTES)
            del self._lines[:oldest]

    @property
    def first(self) -> int:
        """The number of the oldest line that is still here."""
        return self._lines[0].number if self._lines else self.next

    def line(self, number: int) -> Line | None:
        """A line by its number, None when it is not there yet."""
        at = number - self.first
        return self._lines[at] if 0 <= at < len(self._lines) else None

    def bytes_before(self, number: int) -> int:
        """How much was said before this line."""
        line = self.line(number)
        return line.end - len(line.text) if line else self.bytes
