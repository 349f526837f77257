"""A host with a server backend: the same conversation, history and commands as with a local model."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from threading import Event as Flag

import pytest
from fake_server import MODEL, serving
from metrics_pages import VLLM

import specchat_fleet
from specchat.chat.events import Failed, Finished, TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.errors import SpecchatError
from specchat.history.history_reader import HistoryReader
from specchat.host import spawn
from specchat.host.client import Conversation, SessionRequest
from specchat.host.spawn import history_path
from specchat.profile.settings import read_settings
from tests.host.conftest import runtime  # noqa: F401 - a fixture
from tests.plugins.conftest import host_that_sees


def wish(url: str) -> SessionRequest:
    options = {"models.backend": "vllm", "models.url": url, "models.target": MODEL}
    return SessionRequest(settings=read_settings("chat", options))


@pytest.mark.full
@pytest.mark.usefixtures("runtime")
def test_a_conversation_with_a_server_is_stored_like_any_other(monkeypatch, site):
    monkeypatch.setattr(
        spawn, "HOST_COMMAND", host_that_sees([str(Path(specchat_fleet.__file__).parents[1]), str(site)])
    )
    numbers = iter([(100, 300, 50), (104, 312, 56), (108, 324, 62)])

    def page() -> str:
        drafts, drafted, accepted = next(numbers)
        return VLLM.format(drafts=drafts, drafted=drafted, accepted=accepted)

    with serving(pages={"/metrics": page}) as served, closing(Conversation(wish(served.url))) as conversation:
        events = list(conversation.ask("count 10"))
        list(conversation.ask("count 10"))

        assert "".join(event.text for event in events if isinstance(event, TextDelta)).startswith("word0 word1 ")
        assert all(event.text for event in events if isinstance(event, TextDelta))  # no beats on the wire
        assert isinstance(events[-1], Finished) and events[-1].totals.accepted_by_drafter == {"server": 6}
        assert [message["role"] for message in served.asked[-1]["messages"]] == ["user", "assistant", "user"]
        with pytest.raises(SpecchatError, match="does not support completion"):
            list(conversation.fill(FimRequest("def f("), Flag()))
        with closing(HistoryReader(history_path())) as history:
            turns = history.turns(history.threads()[0].tip)
    assert [turn.answer.variant for turn in turns] == ["server", "server"]
    assert turns[0].totals["draft_tokens"] == 12

    with closing(Conversation(SessionRequest(session_id=conversation.session_id))) as again:
        *_, failed = again.ask("count 1")

    assert isinstance(failed, Failed) and "no server answers" in failed.message and "\n" not in failed.message
