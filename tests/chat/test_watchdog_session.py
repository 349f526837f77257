"""A watchdog gets the passes of a session, and acts between its answers."""

import pytest

from specchat.chat.request import Request
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat.threads import MIN_PASSES, ThreadWatchdog
from tests.tiny import speaking


class Notes(ThreadWatchdog):
    """Records the passes, and whether an answer was running."""

    def __init__(self):
        super().__init__(2, lambda: 2, lambda _threads: None)
        self.kinds, self.answered = [], 0

    def record_pass(self, kind, seconds):
        assert self._running_answers
        assert seconds > 0
        self.kinds.append(kind)

    def _decide(self):
        self.answered += 1


@pytest.fixture
def watched():
    engine = load_engine(Profile().override({"models.target": str(speaking()), "models.draft": ""}))
    session = engine.create_session()
    assert session.watchdog is engine.watchdog
    session.watchdog = Notes()
    with session:
        yield session


def test_every_pass_of_an_answer_is_reported_with_its_rows(watched):
    list(watched.ask(Request("Why?", variant="plain", max_tokens=MIN_PASSES)))

    assert [(1024, 0)] * MIN_PASSES == watched.watchdog.kinds


def test_an_abandoned_answer_ends_for_the_watchdog_too(watched):
    events = watched.ask(Request("Why?", variant="plain", max_tokens=4))
    next(events)
    events.close()
    list(watched.ask(Request("Why?", variant="plain", max_tokens=4)))

    assert 2 == watched.watchdog.answered
