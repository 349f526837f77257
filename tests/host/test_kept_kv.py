"""KV caches on disk: which conversations the host keeps there, and until when."""

from __future__ import annotations

import time

import pytest

from specchat.chat.request import Request
from specchat.host.client import Conversation, SessionRequest
from specchat.paths import kv_folder

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))


def unload(talk: Conversation) -> None:
    talk.call("unload")
    deadline = time.monotonic() + 120
    while talk.call("stats")["state"] != "unloaded":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kept() -> list[str]:
    return [path.name.split(".")[0] for path in kv_folder().glob("*")]


def test_a_conversation_is_kept_when_its_models_are_unloaded():
    talk = Conversation()
    list(talk.ask(Request("count 1")))
    assert kept() == []

    unload(talk)

    assert kept() == [talk.session_id]


def test_a_private_conversation_is_not_kept():
    talk = Conversation(SessionRequest(is_stored=False))
    list(talk.ask(Request("count 1")))

    unload(talk)

    assert kept() == []


def test_a_deleted_conversation_leaves_nothing_behind():
    talk = Conversation()
    list(talk.ask(Request("count 1")))
    unload(talk)
    list(talk.ask(Request("count 1")))  # loaded again

    talk.call("delete")
    assert kept() == []
    unload(talk)

    assert kept() == []


def test_a_crashed_answer_is_not_kept():
    talk = Conversation()
    list(talk.ask(Request("crash")))

    unload(talk)

    assert kept() == []
