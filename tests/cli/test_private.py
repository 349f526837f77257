"""`--private`: nothing is stored, and nothing is copied from other conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from specchat.cli import session_options
from specchat.cli.main import run
from specchat.errors import HostError
from specchat.host.client import SessionRequest


@pytest.fixture
def opened(monkeypatch, own_runtime) -> list[SessionRequest]:
    """The conversations that commands would open; the engine process is not there."""
    requests = list[SessionRequest]()

    def refuse(request: SessionRequest) -> None:
        requests.append(request)
        raise HostError("not in this test")

    monkeypatch.setattr(session_options, "Conversation", refuse)
    monkeypatch.setattr("specchat.cli.ask.offer_starter", lambda _options: None)
    monkeypatch.setattr("specchat.cli.chat.offer_starter", lambda _options: None)
    monkeypatch.setattr("specchat.cli.edit.offer_starter", lambda _options: None)
    return requests


@pytest.mark.parametrize(
    "arguments",
    [["ask", "x"], ["chat"], ["-p", "x", "--json"], ["edit", "FILE", "shorten it"]],
    ids=lambda each: each[0],
)
def test_a_private_conversation_is_not_stored_and_recalls_nothing(opened, arguments, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("text\n")
    arguments = [str(file) if each == "FILE" else each for each in arguments]

    run([*arguments])
    run([*arguments, "--private"])

    usual, private = opened
    assert (usual.is_stored, usual.settings.profile.speculation.recall) == (True, True)
    assert (private.is_stored, private.settings.profile.speculation.recall) == (False, False)


def test_a_stored_conversation_cannot_be_continued_in_private(opened, capsys):
    assert run(["chat", "--continue", "--private"]) == 2

    assert "a stored conversation cannot be private" in capsys.readouterr().err


def test_the_demo_recalls_nothing(opened):
    run(["demo", "--target", "embedded"])

    [request] = opened
    assert (request.is_stored, request.settings.profile.speculation.recall) == (False, False)


def test_questions_of_a_private_chat_are_not_written_to_the_prompt_history(opened, monkeypatch):
    files = list[Path | None]()
    monkeypatch.setattr(session_options, "Conversation", FakeConversation)
    monkeypatch.setattr("specchat.repl.loop.run_repl", lambda _chat, history, _question: files.append(history))

    run(["chat", "--private"])
    run(["chat"])

    private, usual = files
    assert private is None
    assert usual is not None


class FakeConversation:
    """Opens nothing."""

    warning = ""

    def __init__(self, _request: SessionRequest) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass
