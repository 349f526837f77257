"""The Python interface: lazy, and the same in process and through the engine process."""

import sys

import pytest

import specchat
from specchat.chat.events import Finished, TextDelta
from specchat.host import spawn
from tests.host.conftest import runtime  # noqa: F401 - a fixture
from tests.processes import modules_after


def test_importing_the_package_imports_nothing_slow():
    heavy = {"torch", "transformers", "textual", "prompt_toolkit", "click", "numpy"}

    assert not heavy & modules_after("import specchat; specchat.open_session")


def test_every_public_name_is_there():
    assert specchat.__all__ == sorted(specchat.__all__)
    assert all(hasattr(specchat, name) for name in specchat.__all__)


@pytest.mark.usefixtures("runtime")
def test_a_session_answers_in_this_process_and_through_the_host(monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-m", "specchat.host"))
    answers = []
    for in_process in (True, False):
        with specchat.open_session("chat", in_process=in_process) as session:
            events = list(session.ask("What is a generator?"))
        assert isinstance(events[-1], Finished)
        answers.append("".join(event.text for event in events if isinstance(event, TextDelta)))

    assert answers[0]
    assert answers[0] == answers[1]
