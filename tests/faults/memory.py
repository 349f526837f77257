"""Passes whose allocation fails: that answer ends in a sentence, and the next one is that of a fresh session."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from specchat.chat.events import Event, Failed, Finished
from specchat.chat.request import Request
from specchat.host import queued_work
from specchat.loading.load_engine import Engine
from tests.faults.cancels import PROMPTS, Leftovers, answer, drafters_of

ALLOCATOR = "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
FAILURES: tuple[Callable[[], Exception], ...] = (
    MemoryError,
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    lambda: RuntimeError(f"{ALLOCATOR}allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)"),
)
PASSES = ("forward", "forward_and_sample")


def fail_at_random(engine: Engine, count: int, seed: int) -> Leftovers:
    """Let so many answers meet a pass without memory; a sentence that does not say so counts as a failure."""
    dice, found, names = random.Random(seed), Leftovers(), drafters_of(engine)
    for number in range(count):
        variant, error = names[number % len(names)], FAILURES[number % len(FAILURES)]
        with engine.create_session() as session:
            request = Request(dice.choice(PROMPTS), max_tokens=24, seed=3, variant=variant)
            with failing_pass(engine, dice.randint(1, 8), error):
                end = last_event(session.ask(request))
            is_sentence = isinstance(end, Failed) and end.message.startswith("no memory for a pass")
            found.tries += not isinstance(end, Finished)  # it may end before that pass
            found.failures += not (is_sentence or isinstance(end, Finished))
            second = Request(dice.choice(PROMPTS), max_tokens=12, seed=4, variant=variant)
            with engine.create_session(tuple(session.turns)) as fresh:
                found.different_texts += answer(session, second) != answer(fresh, second)
    return found


def last_event(events: Any) -> Event:
    """As the host runs an answer."""
    while not (step := queued_work.next_step(events)).is_last:
        pass
    return step.event


@contextmanager
def failing_pass(engine: Engine, moment: int, error: Callable[[], Exception]) -> Generator[None]:
    """The target's pass with this number, counted from 1, has no memory."""
    kind, passes = type(engine.models.target), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queued_work.log, "exception", lambda _message: None)
        for name in PASSES:
            if usual := getattr(kind, name, None):

                def forward(self: Any, *arguments: Any, usual: Any = usual, **options: Any) -> Any:
                    nonlocal passes
                    passes += self is engine.models.target
                    if passes == moment:
                        raise error()
                    return usual(self, *arguments, **options)

                patch.setattr(kind, name, forward)
        yield
