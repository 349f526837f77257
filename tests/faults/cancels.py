"""Cancel answers at random moments, with every drafter, and count what is left of them."""

from __future__ import annotations

import gc
import os
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished, TextDelta
from specchat.chat.request import Request
from specchat.chat.session import Session
from specchat.loading.load_engine import Engine
from specchat.profile.drafter_names import DRAFTERS

PROMPTS = (
    "why is the sky blue?", "write a function that adds two numbers", "repeat after me: one two one two one two",
    "what is 3 + 4?", "tell me about rivers. " + "a river flows to the sea " * 40,
)  # fmt: skip


@dataclass
class Leftovers:
    """What cancelled answers left behind."""

    tries: int = 0  # answers that met the fault: those that ended before it are none
    different_texts: int = 0  # of the next answer, compared with that of a fresh session with the same turns
    failures: int = 0
    threads: int = 0
    descriptors: int = 0

    def is_clean(self) -> bool:
        return not (self.different_texts or self.failures or self.threads or self.descriptors)


def drafters_of(engine: Engine) -> list[str]:
    with engine.create_session() as session:
        return sorted(set(DRAFTERS) & set(session.drafters))


def cancel_at_random(engine: Engine, count: int, seed: int) -> Leftovers:
    """Cancel so many answers; after each, the next answer is compared with that of a fresh session."""
    dice, found, names = random.Random(seed), Leftovers(), drafters_of(engine)
    _cancel_once(engine, names[0], dice)  # the first one loads what is loaded lazily
    gc.collect()  # the engine of an earlier run would be closed during this one, and its descriptors counted as -10
    before = threading.active_count(), descriptors()
    for number in range(count):
        is_same, ends = _cancel_once(engine, names[number % len(names)], dice)
        found.tries += any(isinstance(end, Finished) and end.finish_reason == "cancelled" for end in ends)
        found.different_texts += not is_same
        found.failures += any(isinstance(end, Failed) for end in ends)
    found.threads, found.descriptors = threading.active_count() - before[0], descriptors() - before[1]
    return found


def _cancel_once(engine: Engine, drafter: str, dice: random.Random) -> tuple[bool, list[Event | None]]:
    """Whether the answer after the cancelled ones is that of a fresh session, and the last event of each of those."""
    temperature, ends = dice.choice([0.0, 0.8]), list[Event | None]()
    with engine.create_session() as session:
        for _ in range(dice.randint(1, 2)):
            first = Request(dice.choice(PROMPTS), max_tokens=24, seed=3, variant=drafter, temperature=temperature)
            ends.append(_cancel_at_event(session, first, dice.randint(0, 12)))
        second = Request(dice.choice(PROMPTS), max_tokens=12, seed=4, variant=drafter, temperature=temperature)
        with engine.create_session(tuple(session.turns)) as fresh:
            return answer(session, second) == answer(fresh, second), ends


def _cancel_at_event(session: Session, request: Request, moment: int) -> Event | None:
    """Cancel at an event: before the first one, in the prefill, or in the answer. The last event."""
    cancelled, last_event = Flag(), None
    if not moment:
        cancelled.set()
    for number, event in enumerate(session.ask(request, cancelled), 1):
        last_event = event
        if number == moment:
            cancelled.set()
    return last_event


def answer(session: Session, request: Request) -> str:
    return "".join(event.text for event in session.ask(request) if isinstance(event, TextDelta))


def growth_over_turns(engine: Engine, count: int, settled_after: int) -> float:
    """Ask so many questions in one conversation, each taken back; how the memory grows after the first ones."""
    assert 0 < settled_after < count, "a growth needs turns before it and after it"
    settled_bytes = 0
    with engine.create_session() as session:
        for number in range(count):
            request = Request(PROMPTS[number % len(PROMPTS)], max_tokens=8, seed=number)
            *_, end = session.ask(request)
            assert isinstance(end, Finished), end
            session.rewind()
            if number + 1 == settled_after:
                gc.collect()
                settled_bytes = resident_bytes()
    gc.collect()
    return resident_bytes() / settled_bytes - 1


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
