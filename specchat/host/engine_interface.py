"""What the host expects of an engine: models that answer in conversations and complete gaps. Imports no model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any, Protocol, runtime_checkable

from specchat.chat.events import Event
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.errors import UsageError


class EngineSession(Protocol):
    """A conversation inside the engine, such as `chat/session.py`."""

    turns: list[Any]  # the queue replaces the list after a rewind, between two answers

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]: ...

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """Set how many other requests wait for their next step."""
        ...

    def memory_bytes(self) -> dict[str, int]:
        """The bytes that this conversation holds: `kv_cache`, which the engine counts, too, and others."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class KVKeeper(Protocol):
    """A conversation that can continue from files after the engine has ended."""

    def keep_kv_as(self, name: str) -> None:
        """Begin with what is stored, and store the KV cache under this name at the end; "" stores nothing."""
        ...


class Engine(Protocol):
    """The loaded models of a profile, such as `loading/load_engine.py` returns."""

    def create_session(self, turns: Sequence[Any], profile: Any) -> EngineSession:
        """A conversation that continues these turns with this profile."""
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
    """Completes gaps (fill in the middle), such as `chat/fim_completer.py`."""

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]: ...

    def close(self) -> None: ...


def completion_unsupported(_engine: Any) -> Completer:
    raise UsageError("this engine does not support completion")


@dataclass(frozen=True)
class EngineMemory:
    """What an engine will hold: on which device, and how many bytes at most; None when this is not known yet."""

    device: str = ""
    needed_bytes: int | None = 0


@dataclass(frozen=True)
class EngineLoader:
    """How to load engines. Profiles with equal `engine_key` share one engine.

    `memory_of` plans the memory of a profile, `free_bytes` is what a device has left, and `describe` names its models.
    """

    load: Callable[[Any, Callable[[Event], None], Flag], Engine]
    engine_key: Callable[[Any], Any]
    make_completer: Callable[[Any], Completer] = completion_unsupported
    memory_of: Callable[[Any], EngineMemory] = lambda _profile: EngineMemory()
    free_bytes: Callable[[str], int] = lambda _device: 0
    describe: Callable[[Any], str] = str
