"""The real host with the embedded model: the same text on every path."""

from __future__ import annotations

import json
import sys

import pytest

from specchat.chat.events import Event, Finished, LoadingProgress, StepDone, TextDelta
from specchat.chat.request import Request
from specchat.host import spawn
from specchat.host.client import Conversation, SessionRequest
from specchat.loading.load_engine import load_engine
from specchat.profile.profile_files import load_profile
from specchat.profile.settings import read_settings
from tests.front import command
from tests.host.conftest import kill_host

OVERRIDES = {"models.draft": "", "limits.answer": 24, "sampling.temperature": 1.0}
QUESTION = Request("Name three colours.", seed=11)


@pytest.fixture
def real_host(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-m", "specchat.host"))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def tokens_of(events: list[Event]) -> list[int]:
    return [token.token_id for event in events if isinstance(event, StepDone) for token in event.committed_tokens]


@pytest.mark.full
def test_the_same_text_in_process_through_the_host_and_as_json_lines(real_host, monkeypatch):
    with load_engine(load_profile("chat").override(OVERRIDES)).create_session() as session:
        local = text_of(list(session.ask(QUESTION)))

    hosted = list(Conversation(SessionRequest(settings=read_settings("chat", OVERRIDES))).ask(QUESTION))
    arguments = ["--draft", "", "--max-tokens", "24", "--temperature", "1", "--seed", "11"]
    ran = command(monkeypatch, "script", "-p", QUESTION.text, "--json", *arguments)

    assert local
    assert isinstance(hosted[0], LoadingProgress)
    assert local == text_of(hosted) == json.loads(ran.out.splitlines()[-1])["result"]
    assert b'"loading"' not in ran.out


@pytest.mark.full
def test_a_conversation_goes_on_token_by_token_after_its_host_was_killed(real_host):
    talk = Conversation(SessionRequest(settings=read_settings("chat", {**OVERRIDES, "sampling.seed": 3})))
    list(talk.ask(QUESTION))
    untouched = list(talk.ask(Request("And now?")))
    talk.rewind()
    kill_host()

    again = list(talk.ask(Request("And now?")))

    assert text_of(untouched) == text_of(again)
    assert untouched[-1].totals.prompt_tokens == again[-1].totals.prompt_tokens
    assert tokens_of(untouched) == tokens_of(again)  # who guessed them may differ: a new host has yet to learn
    assert isinstance(again[-1], Finished)


def test_a_profile_that_makes_no_sense_is_refused_by_its_name(real_host, tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text("[models]\ntraget = 'x'\n")

    with pytest.raises(Exception, match=r"mine\.toml.*did you mean 'target'"):
        Conversation(SessionRequest(settings=read_settings(str(profile))))
