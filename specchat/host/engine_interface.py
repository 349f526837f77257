"""What the host asks of an engine: models that answer in conversations and fill gaps. Knows shapes, and no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any, Protocol

from specchat.chat.events import Event
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.errors import UsageError


class EngineSession(Protocol):
    """A conversation of the engine, as `chat/session.py` makes them."""

    turns: list[Any]  # replaced between two answers when the past is another one

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """Answer, one event at a time."""
        ...

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """So many other answers wait for their next step."""
        ...

    def close(self) -> None:
        """Give back the memory."""
        ...


class Engine(Protocol):
    """The loaded models of a profile, as `assemble.py` makes them."""

    def create_session(self, turns: Sequence[Any], profile: Any) -> EngineSession:
        """A conversation that goes on from these turns, as this profile wants it."""
        ...

    @property
    def max_concurrent_turns(self) -> int:
        """How many answers it can write in turns."""
        ...

    def memory_bytes(self) -> dict[str, int]:
        """Bytes by what they hold."""
        ...

    def close(self) -> None:
        """Give back the memory."""
        ...


class Completer(Protocol):
    """Who fills gaps, as `chat/fim_completer.py` makes them."""

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Write into the gap, one event at a time."""
        ...

    def close(self) -> None:
        """Give back the memory."""
        ...


def completion_unsupported(_engine: Any) -> Completer:
    """The completer of who has none."""
    raise UsageError("this engine fills no gaps")


@dataclass(frozen=True)
class EngineLoader:
    """How engines come to be: `models` is the part of a profile that two profiles must share to share an engine."""

    load: Callable[[Any, Callable[[Event], None], Flag], Engine]
    engine_key: Callable[[Any], Any]
    make_completer: Callable[[Any], Completer] = completion_unsupported
