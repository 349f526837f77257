"""Memory that answers have freed leaves the process when it is quiet, so that the shown memory is the held one."""

from __future__ import annotations

import gc
import sys
from threading import Event as Flag
from threading import Thread
from weakref import ref

import pytest

from specchat.chat.request import Request
from specchat.host import queue as queue_module
from specchat.host.queue import TurnQueue
from specchat.loading.load_engine import load_engine
from specchat.process_memory import collect_all, release_free_memory
from specchat.profile.keys import Profile
from tests.faults.cancels import resident_bytes
from tests.host.test_queue import Narrow, OneEngine, ask

PIECE_BYTES, PIECES = 60_000, 1500
SESSIONS = 12


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count resident memory in another way")
def test_pieces_between_those_that_stay_leave_the_process():
    pieces = [bytes([number % 256]) * PIECE_BYTES for number in range(PIECES)]
    kept = pieces[::20]
    del pieces
    before = resident_bytes()

    release_free_memory()

    assert before - resident_bytes() > PIECE_BYTES * PIECES / 2
    assert len(kept) == PIECES // 20


def test_memory_is_given_back_when_no_work_is_left_and_not_before(monkeypatch):
    engine, running, released = Narrow(2), [], Flag()
    monkeypatch.setattr(queue_module, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(queue_module, "release_free_memory", lambda: (running.append(engine.running), released.set()))
    ends = []
    queue = TurnQueue(OneEngine(engine), ends.append)
    for number in range(3):
        ask(queue, str(number), "p", str(number))
    thread = Thread(target=queue.run, daemon=True)
    thread.start()

    assert released.wait(120)
    assert len([each for each in ends if type(each.event).__name__ == "Finished"]) == 3
    queue.stop()
    thread.join(120)
    assert running == [0]


def test_what_only_refers_to_itself_is_freed_then(monkeypatch):
    """Python looks for it among old objects after hundreds of answers."""

    class Owner:
        def __init__(self) -> None:
            self.itself = self

    left, released = ref(Owner()), Flag()
    monkeypatch.setattr(queue_module, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(queue_module, "release_free_memory", released.set)
    gc.disable()
    try:
        queue = TurnQueue(OneEngine(Narrow(1)), lambda _event: None)
        thread = Thread(target=queue.run, daemon=True)
        thread.start()
        assert released.wait(120) and left() is None
    finally:
        gc.enable()
    queue.stop()
    thread.join(120)


@pytest.mark.full
def test_many_small_conversations_hold_what_is_shown():
    collect_all()  # what earlier tests left in this process must not leave it in the middle
    engine = load_engine(Profile())
    with engine.create_session() as first:
        list(first.ask(Request("tell me about boats", max_tokens=20, seed=1)))
    release_free_memory()
    before = resident_bytes() - sum(engine.memory_bytes().values())
    sessions = [engine.create_session() for _ in range(SESSIONS)]
    for number, session in enumerate(sessions):
        list(session.ask(Request(f"tell me about rivers and boats {number}", max_tokens=40, seed=number)))
    release_free_memory()

    shown = sum(engine.memory_bytes().values()) + sum(each.memory_bytes()["drafters"] for each in sessions)
    assert resident_bytes() - before == pytest.approx(shown, rel=0.1)
