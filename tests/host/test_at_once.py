"""Many answers of one engine at once: what a short question waits for, who gets steps, and what is left of them."""

from __future__ import annotations

from collections import Counter
from random import Random
from threading import Condition, Thread

import pytest

from specchat.chat.events import Event, Failed, Finished, PrefillProgress, Routed, StepDone, TextDelta, Totals, Waiting
from specchat.chat.request import Request
from specchat.chat.router import Route
from specchat.chat.running_answer import RunningAnswer
from specchat.chat.transcript import TextOwner
from specchat.engine.cache import KVCache
from specchat.engine.cache_sizes import SCRATCH_ROWS, slot_rows
from specchat.engine.model import ModelOutput
from specchat.engine.tree import DraftTree
from specchat.forward.llama.llama import LlamaModel
from specchat.host.queue import TurnQueue
from specchat.host.queued_work import QueuedTurn, TurnEvent
from specchat.host.session_turns import SessionTurns
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from tests.host.test_queue import Narrow, OneEngine, Writer, ask
from tests.tiny import speaking

ANSWERS = 10


class LongWriter(Writer):
    """A prompt of two pieces, and an answer of many steps, each of which has a text before its end."""

    def events(self):
        yield Routed("plain", 0, "a test", 1)
        for read in (0, 128, 200):
            yield PrefillProgress(read, 200)
        for _ in range(50):
            yield TextDelta("a")
            yield StepDone((), (), (), 0.0, 0.001)
        yield Finished("stop", Totals())


class Wide(Narrow):
    def answer(self, _question, _cancelled):
        return LongWriter(self)


def test_a_question_behind_four_answers_has_its_text_after_a_few_steps_of_theirs():
    events, changed = list[TurnEvent](), Condition()

    def emit(turn_event: TurnEvent) -> None:
        with changed:
            events.append(turn_event)
            changed.notify_all()
        if turn_event.turn_id == "long 3" and sum(each.turn_id == "long 3" for each in events) == 20:
            ask(queue, "short", "profile", "short")

    queue = TurnQueue(OneEngine(Wide(16)), emit)
    for number in range(4):
        ask(queue, str(number), "profile", f"long {number}")
    thread = Thread(target=queue.run)
    thread.start()
    with changed:
        assert changed.wait_for(lambda: sum(isinstance(each.event, Finished) for each in events) == 5, 60)
    queue.stop()
    thread.join(60)

    asked = next(at for at, each in enumerate(events) if each.turn_id == "short")
    text = next(at for at, each in enumerate(events) if each.turn_id == "short" and isinstance(each.event, TextDelta))
    steps = Counter(each.turn_id for each in events[asked:text] if isinstance(each.event, TextDelta))
    assert asked == 1 + max(at for at in range(asked) if events[at].turn_id == "long 3")  # the next step is its own
    assert set(steps.values()) == {1}  # while it reads its second piece, and computes its first step


@pytest.fixture(scope="module")
def engine():
    return load_engine(Profile().override({"models.target": str(speaking()), "sampling.temperature": 0.7}))


class Clients:
    """Clients of one engine, through the queue: the events of each answer."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.events, self.order = engine, dict[str, list[Event]](), list[str]()
        self.changed = Condition()
        self.queue = TurnQueue(OneEngine(engine), self._on_event)
        self.queue.models.engines.loader.engine_key = lambda _profile: "the engine"
        self.cancelled_after = dict[str, int]()  # steps

    def ask(self, id: str, text: str, tokens: int, seed: int) -> None:
        turns = SessionTurns(TextOwner(id, is_private=False))
        turns.add(id)
        self.events[id] = []
        self.queue.enqueue(QueuedTurn(id, id, Request(text, max_tokens=tokens, seed=seed), self._profile, turns))

    @property
    def _profile(self) -> Profile:
        return self.engine.models.profile

    def _on_event(self, turn_event: TurnEvent) -> None:
        with self.changed:
            self.events[turn_event.turn_id].append(turn_event.event)
            self.order.append(turn_event.turn_id)
            self.changed.notify_all()
        steps = sum(isinstance(each, StepDone) for each in self.events[turn_event.turn_id])
        if steps == self.cancelled_after.get(turn_event.turn_id, -1):
            self.queue.cancel(turn_event.turn_id)

    def run(self) -> None:
        """Until each answer has ended."""
        thread = Thread(target=self.queue.run, daemon=True)
        thread.start()
        with self.changed:
            assert self.changed.wait_for(self._have_ended, 300), {id: each[-1:] for id, each in self.events.items()}
        self.queue.models.engines.remove(self.queue.models.engines.find(self._profile))  # it is not closed
        self.queue.stop()
        thread.join(60)

    def _have_ended(self) -> bool:
        return all(each and isinstance(each[-1], Finished | Failed) for each in self.events.values())

    def text(self, id: str) -> str:
        return "".join(each.text for each in self.events[id] if isinstance(each, TextDelta))

    def reason(self, id: str) -> str:
        return self.events[id][-1].finish_reason


def wanted(seed: int) -> list[tuple[str, int]]:
    """The questions of a run, and the lengths of their answers."""
    dice, shared = Random(seed), "what all of them begin with, so that they share its rows; " * 2
    return [
        (shared * (number % 2) + f"question {number}? " * dice.randrange(1, 9), dice.randrange(2, 40))
        for number in range(ANSWERS)
    ]


def alone(engine: Engine, seed: int) -> list[str]:
    texts = list[str]()
    for number, (text, tokens) in enumerate(wanted(seed)):
        clients = Clients(engine)
        clients.ask("one", text, tokens, number)
        clients.run()
        texts.append(clients.text("one"))
    return texts


@pytest.mark.dear
@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.full) for each in (2, 3, 4))])
@pytest.mark.parametrize("turns_of_memory", [16, 2])
def test_ten_answers_at_once_end_with_the_texts_of_each_alone(engine, turns_of_memory, seed, monkeypatch):
    pool, expected = engine.models.target.pool, alone(engine, seed)
    slot_bytes = slot_rows(SCRATCH_ROWS) * pool.layout.bytes_per_row
    monkeypatch.setattr(pool, "budget_bytes", turns_of_memory * slot_bytes)
    dice, clients = Random(seed), Clients(engine)
    for number, (text, tokens) in enumerate(wanted(seed)):
        clients.ask(str(number), text, tokens, number)
    cancelled = dice.sample(range(ANSWERS), 3)
    clients.cancelled_after = {str(number): dice.randrange(3) for number in cancelled}

    clients.run()

    for number in range(ANSWERS):
        text, whole = clients.text(str(number)), expected[number]
        is_cancelled = clients.reason(str(number)) == "cancelled"
        assert whole.startswith(text) if is_cancelled else text == whole
        assert not is_cancelled or number in cancelled
    waited = [id for id, events in clients.events.items() if any(isinstance(each, Waiting) for each in events)]
    assert bool(waited) == (turns_of_memory == 2)
    assert pool.running_turns == 0
    assert not pool._line
    assert sum(text.generation.cache.slot is not None for text in engine.texts) <= pool.slots


def test_what_an_answer_says_of_itself_is_its_own_while_others_run(engine):
    clients = Clients(engine)
    for number, (text, tokens) in enumerate(wanted(9)):
        clients.ask(str(number), text, tokens, number)

    clients.run()

    for events in clients.events.values():
        steps, totals = [each for each in events if isinstance(each, StepDone)], events[-1].totals
        own = totals.prefill_seconds + sum(step.seconds for step in steps)
        assert totals.completion_tokens == sum(step.tokens for step in steps)
        assert totals.other_seconds > 0
        assert own + totals.queue_seconds + totals.other_seconds <= totals.seconds * 1.001


def test_answers_at_once_share_their_passes_and_the_error_of_one_is_its_own(engine, monkeypatch):
    expected, counts, forward = alone(engine, 5), list[int](), LlamaModel.forward_texts
    clients = Clients(engine)

    def counted(model: LlamaModel, trees: list[tuple[DraftTree, KVCache]]) -> list[ModelOutput]:
        counts.append(len(trees))
        return forward(model, trees)

    def fail_after_three_steps(running: RunningAnswer, route: Route, limit: int, *, opens_thought: bool):
        for event in decode(running, route, limit, opens_thought=opens_thought):
            yield event
            if running.request.seed == 4 and len(running.account._steps) == 3:
                raise RuntimeError("broken")

    decode = RunningAnswer._decode
    monkeypatch.setattr(LlamaModel, "forward_texts", counted)
    monkeypatch.setattr(RunningAnswer, "_decode", fail_after_three_steps)
    for number, (text, tokens) in enumerate(wanted(5)):
        clients.ask(str(number), text, max(tokens, 8), number)
    clients.run()

    assert max(counts) > ANSWERS / 2
    assert isinstance(clients.events["4"][-1], Failed)
    for number in set(range(ANSWERS)) - {4}:
        assert clients.text(str(number)).startswith(expected[number])
    assert engine.models.joint_passes._members == 0
    assert not engine.models.joint_passes._queued
