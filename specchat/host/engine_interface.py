"""What the host expects of an engine: models that answer in conversations and complete gaps. Imports no model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Protocol

from specchat.chat.events import Event
from specchat.chat.fim_request import FimRequest
from specchat.chat.transcript import Question, Turn


class Answer(Protocol):
    """An answer that an engine computes, such as `RunningAnswer` of `chat/session.py`."""

    @property
    def turns(self) -> Sequence[Turn]:
        """What the model reads from now on: those of the question, and that of this answer if it keeps one."""
        ...

    def events(self) -> Iterator[Event]:
        """The last one is Finished or Failed. Closing it ends the answer."""
        ...

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """Set how many other requests wait for their next step."""
        ...


class Engine(Protocol):
    """The loaded models of a profile, such as `loading/load_engine.py` returns."""

    def answer(self, question: Question, cancelled: Flag) -> Answer:
        """Answer a question, with the profile there. A set `cancelled` ends it within a step."""
        ...

    def forget(self, name: str) -> None:
        """Offer no more what was computed for a conversation, and store none of it. Thread-safe."""
        ...

    def drop_forgotten(self) -> None:
        """Free the memory of what was forgotten."""
        ...

    @property
    def max_concurrent_turns(self) -> int:
        """How many answers can run interleaved."""
        ...

    @property
    def variants(self) -> frozenset[str]:
        """The drafters that can run with these models. Read by other threads."""
        ...

    def memory_bytes(self) -> dict[str, int]:
        """Memory use in bytes, by component."""
        ...

    def activate(self) -> None:
        """Prepare for a step after another engine has computed, for example by setting the number of threads."""
        ...

    def close(self) -> None: ...


class Completer(Protocol):
    """Completes gaps (fill in the middle): of a plugin (`register_completers`)."""

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class EngineMemory:
    """What an engine will hold: on which device, and how many bytes at most; None when this is not known yet."""

    device: str = ""
    needed_bytes: int | None = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict[str, int])  # by device: layers that are not on `device`

    @property
    def by_device(self) -> dict[str, int | None]:
        return {self.device: self.needed_bytes, **self.elsewhere}

    def held_on(self, device: str, held_bytes: int) -> float:
        """Of all bytes that an engine holds, those on one device, if it holds the same part of its plan everywhere."""
        planned = self.by_device
        total = sum(each or 0 for each in planned.values())
        return held_bytes * (planned.get(device) or 0) / total if self.elsewhere and total else held_bytes
