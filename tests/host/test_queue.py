"""The engine thread: who steps when."""

from collections.abc import Iterator
from threading import Event as Flag
from threading import Thread

from specchat.chat.events import Event, Finished, Routed, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.host.engine_interface import EngineLoader
from specchat.host.queue import QueuedCompletion, QueuedTurn, TurnEvent, TurnQueue


class Narrow:
    """An engine that has room for so many answers at once, and counts how many it was asked for."""

    def __init__(self, room: int) -> None:
        self.max_concurrent_turns, self.now, self.most = room, 0, 0
        self.waiting: list[int] = []
        self.urgent: list[bool] = []

    def create_session(self, turns, _profile):
        return Writer(self, list(turns))

    def memory_bytes(self):
        return {}

    def close(self):
        pass


class Writer:
    def __init__(self, engine: Narrow, turns: list) -> None:
        self.engine, self.turns = engine, turns

    def ask(self, _request: Request, _cancelled: Flag) -> Iterator[Event]:
        self.engine.now += 1
        self.engine.most = max(self.engine.most, self.engine.now)
        yield Routed("plain", 0, "a test", 1)
        yield TextDelta("a")
        yield TextDelta("b")
        self.engine.now -= 1
        yield Finished("stop", Totals())

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        self.engine.waiting.append(waiting_requests)
        self.engine.urgent.append(is_urgent)

    def close(self) -> None:
        pass


def told(room: int, sessions: int) -> tuple[Narrow, list[TurnEvent]]:
    """Everything that happens when so many sessions ask at once."""
    engine, happened, done = Narrow(room), list[TurnEvent](), Flag()

    def post(what: TurnEvent) -> None:
        happened.append(what)
        if sum(isinstance(each.event, Finished) for each in happened) == sessions:
            done.set()

    queue = TurnQueue(EngineLoader(lambda *_: engine, lambda profile: profile), post)
    for number in range(sessions):
        queue.open_session(str(number), "profile", [])
        queue.enqueue(QueuedTurn(f"turn {number}", str(number), Request("?")))
    thread = Thread(target=queue.run)
    thread.start()
    assert done.wait(20)
    queue.stop()
    thread.join(20)
    return engine, happened


def test_sessions_take_turns_at_every_step():
    _engine, happened = told(room=2, sessions=2)

    assert [each.session_id for each in happened if isinstance(each.event, TextDelta)] == ["0", "1", "0", "1"]


def test_who_finds_no_room_waits_and_is_answered():
    engine, happened = told(room=2, sessions=5)

    assert engine.most == 2
    assert [each.session_id for each in happened if isinstance(each.event, Finished)] == ["0", "1", "2", "3", "4"]


def test_who_writes_is_told_how_many_others_wait_for_their_step():
    alone, _happened = told(room=2, sessions=1)
    crowded, _happened = told(room=3, sessions=3)

    assert {0} == set(alone.waiting)
    assert 2 == max(crowded.waiting)


class Slow:
    """Fills a gap in more steps than it may take at once."""

    def complete(self, _request: FimRequest, _cancelled: Flag) -> Iterator[Event]:
        yield from [TextDelta("x")] * 6
        yield Finished("stop", Totals())

    def close(self) -> None:
        pass


def test_who_writes_is_told_while_a_completion_is_written():
    engine, done = Narrow(2), Flag()

    def hear(what: TurnEvent) -> None:
        if isinstance(what.event, Routed):
            queue.enqueue_completion(QueuedCompletion("gap", "0", FimRequest("a")))
        elif what.turn_id == "turn" and isinstance(what.event, Finished):
            done.set()

    queue = TurnQueue(EngineLoader(lambda *_: engine, lambda profile: profile, lambda _engine: Slow()), hear)
    queue.open_session("0", "profile", [])
    queue.enqueue(QueuedTurn("turn", "0", Request("?")))
    thread = Thread(target=queue.run)
    thread.start()
    assert done.wait(20)
    queue.stop()
    thread.join(20)

    assert engine.urgent == [True, False, False]
    assert set(engine.waiting) == {0}
