"""Several engines side by side: which one goes for another, who waits, and nobody for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Condition, Thread
from threading import Event as Flag

import pytest

from specchat.chat.events import Event, Finished, Routed, TextDelta, Totals, Waiting
from specchat.chat.fim_request import FimRequest
from specchat.chat.transcript import Question
from specchat.errors import ModelError
from specchat.host import engine_loading, queue
from specchat.host.engine_interface import EngineMemory
from specchat.host.engine_loader import EngineLoader
from specchat.host.loaded_engines import Room
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import QueuedCompletion, TurnEvent
from tests.host.test_queue import ask

GIB = 2**30


class Sized:
    """An engine whose profile is its name and its size in GB: `chat 3`."""

    max_concurrent_turns = 2

    def __init__(self, machine: Machine, profile: str) -> None:
        self.machine, self.profile = machine, profile

    def answer(self, question, cancelled):
        return Talk(question, cancelled)

    def memory_bytes(self):
        return {"target": size_of(self.profile)}

    def activate(self):
        self.machine.activated.append(self.profile)

    def close(self):
        self.machine.held.remove(self.profile)
        self.machine.closed.append(self.profile)


class Talk:
    turns = ()

    def __init__(self, question: Question, cancelled: Flag) -> None:
        self.text, self.cancelled = question.request.text, cancelled

    def events(self) -> Iterator[Event]:
        yield Routed("plain", 0, "a test", 1)
        while self.text == "until cancelled" and not self.cancelled.wait(0.001):
            yield TextDelta(".")
        yield TextDelta("a")
        yield Finished("stop", Totals())

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        pass


class Filler:
    def __init__(self, engine: Sized) -> None:
        self.engine = engine

    def complete(self, _request: FimRequest, _cancelled: Flag) -> Iterator[Event]:
        yield TextDelta(f"by {self.engine.profile}")
        yield Finished("stop", Totals())

    def close(self) -> None:
        pass


def size_of(profile: str) -> int:
    return int(profile.split()[1]) * GIB


class Machine:
    """A machine with so much memory, its queue, and what happened."""

    def __init__(self, gigabytes: int) -> None:
        self.bytes = gigabytes * GIB
        self.held: list[str] = []
        self.loaded: list[str] = []
        self.closed: list[str] = []
        self.activated: list[str] = []
        self.changed_files = set[str]()
        self.events: list[TurnEvent] = []
        self.changed = Condition()
        self.on_event = lambda _event: None
        self.queue = TurnQueue(SizedLoader(self), self.emit)
        self.turns = 0
        self.session_of: dict[str, str] = {}

    def load(self, profile: str) -> Sized:
        self.changed_files.discard(profile)
        self.held.append(profile)
        self.loaded.append(profile)
        return Sized(self, profile)

    def memory_of(self, profile: str) -> EngineMemory:
        if profile.startswith("broken"):
            raise ModelError("config.json is damaged")
        return EngineMemory("cpu", None if profile.startswith("unknown") else size_of(profile))

    @property
    def free_bytes(self) -> int:
        return self.bytes - sum(map(size_of, self.held))

    def emit(self, event: TurnEvent) -> None:
        self.on_event(event)
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def ask(self, profile: str, text: str = "?", session: str = "") -> str:
        self.turns += 1
        session, turn = session or f"session of {profile}", f"turn {self.turns}"
        self.session_of[turn] = session
        ask(self.queue, session, profile, turn, text)
        return turn

    def complete(self, profile: str) -> str:
        self.turns += 1
        self.queue.enqueue(QueuedCompletion(f"gap {self.turns}", FimRequest("a"), profile))
        return f"gap {self.turns}"

    def of(self, turn: str, kind: type) -> list:
        return [each.event for each in self.events if each.turn_id == turn and isinstance(each.event, kind)]

    def wait(self, turn: str, kind: type = Finished) -> Event:
        with self.changed:
            assert self.changed.wait_for(lambda: self.of(turn, kind), 20), f"no {kind.__name__} of {turn}"
        return self.of(turn, kind)[0]

    def answer(self, profile: str) -> None:
        self.wait(self.ask(profile))


class SizedLoader(EngineLoader):
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def load(self, profile, _progress, _cancelled):
        return self.machine.load(profile)

    def engine_key(self, profile):
        return profile

    def describe(self, profile):
        return profile

    def memory_of(self, profile):
        return self.machine.memory_of(profile)

    def has_changed_files(self, engine):
        return engine.profile in self.machine.changed_files

    def free_bytes(self, _device):
        return self.machine.free_bytes

    def make_completer(self, engine):
        return Filler(engine)


@pytest.fixture
def machine():
    """A machine of 8 GB whose queue runs."""
    machine = Machine(8)
    thread = Thread(target=machine.queue.run)
    thread.start()
    yield machine
    machine.queue.stop()
    thread.join(120)
    assert not thread.is_alive()


def test_two_models_that_fit_are_loaded_once_however_they_alternate(machine):
    for _ in range(5):
        machine.answer("chat 5")
        machine.answer("fim 1")

    assert machine.loaded == ["chat 5", "fim 1"]
    assert machine.queue.models.engines.memory_bytes["target"] == 6 * GIB


def test_the_engine_that_was_used_longest_ago_goes_first_and_only_as_many_as_needed(machine):
    for profile in ("a 3", "b 2", "c 2", "a 3", "d 3"):
        machine.answer(profile)

    assert machine.closed == ["b 2"] or machine.closed == ["b 2", "c 2"]
    assert "a 3" in machine.held


def test_a_model_that_is_not_on_this_disk_gets_all_memory(machine):
    machine.answer("a 1")
    machine.answer("unknown 1")

    assert machine.closed == ["a 1"]


def test_the_memory_that_a_loaded_engine_may_still_take_counts(machine):
    machine.memory_of = lambda profile: EngineMemory("cpu", 6 * GIB)
    machine.answer("a 1")
    machine.answer("b 1")

    assert machine.closed == ["a 1"]


def test_the_memory_of_layers_that_are_elsewhere_counts_on_their_device(machine):
    beside_a_gpu, on_two = EngineMemory("cuda", GIB, {"cpu": 6 * GIB}), EngineMemory("cuda", GIB, {"cuda:1": 6 * GIB})
    plans = {"a 1": beside_a_gpu, "b 1": EngineMemory("cuda:2", 6 * GIB), "c 1": EngineMemory("cpu", 6 * GIB)}
    machine.memory_of = (plans | {"d 1": on_two}).__getitem__
    machine.answer("a 1")
    machine.answer("b 1")
    assert machine.closed == []
    machine.answer("c 1")
    assert machine.closed == ["a 1"]
    machine.answer("d 1")
    assert machine.closed == ["a 1"]


def test_an_engine_is_prepared_only_after_another_one_has_computed(machine):
    for profile in ("a 1", "a 1", "b 1", "a 1"):
        machine.answer(profile)

    assert machine.activated == ["a 1", "b 1", "a 1"]


def test_a_question_that_waits_for_memory_says_for_what(machine):
    busy = machine.ask("a 5", "until cancelled")
    machine.wait(busy, TextDelta)
    waiting = machine.ask("b 5")

    told = machine.wait(waiting, Waiting)

    memory = "b 5 needs 5.0 GB and waits for a 5, which is in use and leaves 3.0 GB"
    assert told.text == f"waiting for memory: {memory}…"
    machine.queue.cancel(busy)
    machine.wait(waiting)
    assert len(machine.of(waiting, Waiting)) == 1


def test_while_two_clients_keep_a_model_busy_a_question_for_another_is_answered_after_a_few_turns(machine):
    """Each client of the first model asks again as soon as it is answered."""
    started, asked = list[str](), list[str]()

    def on_event(event: TurnEvent) -> None:
        session = machine.session_of.get(event.turn_id, "")
        if isinstance(event.event, Routed):
            started.append(session)
            if len(started) == 1:
                asked.append(machine.ask("b 5", session="other"))
        if isinstance(event.event, Finished) and session.startswith("busy") and machine.turns < 60:
            machine.ask("a 5", session=session)

    machine.on_event = on_event
    machine.wait(machine.ask("a 5", session="busy 1"), Routed)
    machine.ask("a 5", session="busy 2")
    machine.wait(asked[0])

    assert started.index("other") <= 2 + queue.MAX_OVERTAKING_TURNS
    assert machine.loaded[:2] == ["a 5", "b 5"]


def test_turns_start_in_the_order_of_their_arrival(machine):
    started = []
    machine.on_event = lambda event: started.append(event.turn_id) if isinstance(event.event, Routed) else None
    busy = [machine.ask("a 1", "until cancelled", session=name) for name in ("x", "y")]
    for turn in busy:
        machine.wait(turn, TextDelta)
    later = [machine.ask("a 1", session=name) for name in ("z", "x", "y")]
    machine.queue.cancel(busy[0])
    machine.wait(later[1])
    machine.queue.cancel(busy[1])
    machine.wait(later[2])

    assert started[2:] == later


def test_a_completion_loads_its_own_model_beside_the_chat(machine):
    machine.answer("chat 5")
    while machine.wait(filled := machine.complete("fim 1")).finish_reason == "model_loading":
        time.sleep(0.001)

    assert [event.text for event in machine.of(filled, TextDelta)] == ["by fim 1"]
    assert machine.held == ["chat 5", "fim 1"]


def test_a_completion_takes_no_memory_from_a_chat_and_says_that_it_waits(machine):
    machine.answer("chat 5")
    while not (end := machine.wait(machine.complete("fim 5"))).explanation:
        time.sleep(0.001)

    assert end.finish_reason == "model_loading"
    assert end.explanation == "fim 5 needs 5.0 GB and waits for chat 5, which is in use and leaves 3.0 GB"
    assert machine.held == ["chat 5"]


def test_a_completion_takes_the_memory_of_a_model_that_nobody_has_used_for_a_while(machine, monkeypatch):
    monkeypatch.setattr(engine_loading, "PRELOAD_IDLE_SECONDS", 0.0)
    machine.answer("chat 5")
    while machine.wait(machine.complete("fim 5")).finish_reason == "model_loading":
        time.sleep(0.001)

    assert machine.held == ["fim 5"]


def test_a_model_whose_memory_cannot_be_planned_fails_its_own_question(machine):
    machine.answer("a 1")
    failed = machine.ask("broken 1")
    with machine.changed:
        machine.changed.wait_for(lambda: any(each.turn_id == failed for each in machine.events), 20)

    assert [each.event.message for each in machine.events if each.turn_id == failed] == ["config.json is damaged"]
    machine.answer("a 1")
    assert machine.loaded == ["a 1"]


def test_a_loaded_model_whose_files_are_gone_hurts_no_other_and_goes_when_memory_is_needed(machine):
    machine.answer("a 3")
    plan = machine.memory_of

    def memory_of(profile: str) -> EngineMemory:
        if profile == "a 3":
            raise ModelError("a 3: no such folder")
        return plan(profile)

    machine.memory_of = memory_of
    machine.answer("b 2")
    machine.answer("a 3")
    assert machine.closed == []
    machine.answer("c 6")

    assert machine.closed == ["b 2", "a 3"]


def test_a_model_whose_files_have_changed_is_loaded_anew_as_soon_as_no_answer_uses_it(machine):
    machine.answer("b 1")
    busy = machine.ask("a 1", "until cancelled")
    machine.wait(busy, TextDelta)
    machine.changed_files.add("a 1")
    machine.answer("b 1")
    machine.queue.cancel(busy)
    machine.wait(busy)
    machine.answer("a 1")

    assert (machine.loaded, machine.closed) == (["b 1", "a 1", "a 1"], ["a 1"])


def test_planning_the_memory_of_models_is_a_part_of_loading_them(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(engine_loading.time, "perf_counter", lambda: clock[0])
    machine = Machine(8)
    models = machine.queue.models
    models.load("first 3", ())

    def slow_plan(profile: str) -> EngineMemory:
        clock[0] += 3
        return EngineMemory("cpu", size_of(profile))

    machine.memory_of = slow_plan
    assert models.find_room("second 3", ()) == Room([])
    assert models.loading_seconds_since(99) == 6, "for the second one, and for the first, which was planned only now"
    assert models.loading_seconds_since(104) == 2
