"""The engine thread: the order of steps."""

from collections.abc import Iterator
from threading import Event as Flag
from threading import Thread

from specchat.chat.events import Event, Finished, Routed, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.transcript import TextOwner
from specchat.host.engine_loader import EngineLoader
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import QueuedCompletion, QueuedTurn, TurnEvent
from specchat.host.session_turns import SessionTurns


class Narrow:
    """An engine with this many slots, which counts its concurrent answers."""

    def __init__(self, slots: int) -> None:
        self.max_concurrent_turns, self.running, self.max_running = slots, 0, 0
        self.waiting: list[int] = []
        self.urgent: list[bool] = []

    def answer(self, _question, _cancelled):
        return Writer(self)

    def forget(self, name):
        pass

    def memory_bytes(self):
        return {}

    def activate(self):
        pass

    def close(self):
        pass


class Writer:
    turns = ()

    def __init__(self, engine: Narrow) -> None:
        self.engine = engine

    def events(self) -> Iterator[Event]:
        self.engine.running += 1
        self.engine.max_running = max(self.engine.max_running, self.engine.running)
        yield Routed("plain", 0, "a test", 1)
        yield TextDelta("a")
        yield TextDelta("b")
        self.engine.running -= 1
        yield Finished("stop", Totals())

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        self.engine.waiting.append(waiting_requests)
        self.engine.urgent.append(is_urgent)


class OneEngine(EngineLoader):
    """Loads this engine for any profile; profiles are texts, and their own keys."""

    def __init__(self, engine) -> None:
        self.engine = engine

    def load(self, _profile, _progress, _cancelled):
        return self.engine

    def engine_key(self, profile):
        return profile

    def make_completer(self, _engine):
        return Slow()


def ask(queue: TurnQueue, session: str, profile: str, turn: str, text: str = "?") -> None:
    turns = SessionTurns(TextOwner(session))
    turns.add(turn)
    queue.enqueue(QueuedTurn(turn, session, Request(text), profile, turns))


def run_queue(slots: int, sessions: int) -> tuple[Narrow, list[TurnEvent]]:
    """The events when this many sessions ask at once."""
    engine, events, done = Narrow(slots), list[TurnEvent](), Flag()

    def emit(turn_event: TurnEvent) -> None:
        events.append(turn_event)
        if sum(isinstance(each.event, Finished) for each in events) == sessions:
            done.set()

    queue = TurnQueue(OneEngine(engine), emit)
    for number in range(sessions):
        ask(queue, str(number), "profile", f"turn {number}")
    thread = Thread(target=queue.run)
    thread.start()
    assert done.wait(120)
    queue.stop()
    thread.join(120)
    return engine, events


def test_sessions_take_turns_at_every_step():
    _engine, events = run_queue(slots=2, sessions=2)

    assert [each.turn_id for each in events if isinstance(each.event, TextDelta)] == 2 * ["turn 0", "turn 1"]


def test_turns_beyond_the_free_slots_wait():
    engine, events = run_queue(slots=2, sessions=5)

    assert engine.max_running == 2
    assert [each.turn_id for each in events if isinstance(each.event, Finished)] == [f"turn {n}" for n in range(5)]


def test_a_session_knows_how_many_other_sessions_run():
    alone, _happened = run_queue(slots=2, sessions=1)
    crowded, _happened = run_queue(slots=3, sessions=3)

    assert {0} == set(alone.waiting)
    assert 2 == max(crowded.waiting)


class Slow:
    """A completion with more steps than one round has."""

    def complete(self, _request: FimRequest, _cancelled: Flag) -> Iterator[Event]:
        yield from [TextDelta("x")] * 6
        yield Finished("stop", Totals())

    def close(self) -> None:
        pass


def test_a_session_knows_that_a_completion_runs():
    engine, done = Narrow(2), Flag()

    def on_event(turn_event: TurnEvent) -> None:
        if isinstance(turn_event.event, Routed):
            queue.enqueue(QueuedCompletion("gap", FimRequest("a"), "profile"))
        elif turn_event.turn_id == "turn" and isinstance(turn_event.event, Finished):
            done.set()

    queue = TurnQueue(OneEngine(engine), on_event)
    ask(queue, "0", "profile", "turn")
    thread = Thread(target=queue.run)
    thread.start()
    assert done.wait(120)
    queue.stop()
    thread.join(120)

    assert engine.urgent == [True, False]
    assert set(engine.waiting) == {0}
