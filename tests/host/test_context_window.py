"""The context window of a model, known before the model is loaded."""

from __future__ import annotations

import json
from threading import Event as Flag

from specchat.app.edit_session import EditSession
from specchat.chat.events import Finished
from specchat.chat.request import Request
from specchat.errors import ContextError
from specchat.host.client import Conversation, SessionRequest
from specchat.host.engine_loader import EngineLoader
from specchat.profile.profile_files import load_profile
from specchat.profile.settings import read_settings
from specchat.weights.context_window import trained_context_window
from tests.each_row import each_row


def test_a_conversation_knows_its_context_window_when_it_opens(runtime):
    with (
        Conversation(SessionRequest(settings=read_settings("narrow"))) as narrow,
        Conversation(SessionRequest()) as unknown,
    ):
        assert (512, 0) == (narrow.context_window, unknown.context_window)


def test_an_edit_counts_with_the_window_that_the_host_reports(runtime):
    with EditSession(SessionRequest(settings=read_settings("narrow")), Flag()) as session:
        session.open()
        assert 512 == session.window_tokens


def test_a_question_that_cannot_fit_is_neither_queued_nor_stored(runtime):
    with Conversation(SessionRequest(settings=read_settings("narrow"))) as narrow:
        [failed] = narrow.ask(Request("x" * 100_000))

        assert failed.exit_code == ContextError.exit_code
        assert "100000 characters, which are at least 782 tokens, and the context window has 512" in failed.message
        assert narrow.turns() == []
        assert isinstance(list(narrow.ask(Request("hello")))[-1], Finished)


def test_the_window_of_an_unknown_model_is_not_guessed():
    profile = load_profile("chat").override({"models.target": "nobody/has-this-model"})

    assert EngineLoader().context_window(profile) == 0


def test_the_window_of_a_server_is_that_of_its_profile():
    models = {"models.target": "served", "models.backend": "vllm", "models.url": "http://127.0.0.1:1/v1"}
    profile = load_profile("chat").override({**models, "limits.context": 1000, "limits.answer": 100})

    assert EngineLoader().context_window(profile) == 1000


@each_row("context, expected", [(1000, 1000), (100_000, 4096)])
def test_it_is_the_smaller_of_limit_and_trained_context(context, expected):
    profile = load_profile("edit").override({"limits.context": context, "limits.answer": 100})

    assert expected == EngineLoader().context_window(profile)


@each_row(
    "config, expected",
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"text_config": {"max_position_embeddings": 8}}, 8),
        ({"max_position_embeddings": "many"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_the_config_of_a_folder_has_it(tmp_path, config, expected):
    (tmp_path / "config.json").write_text(json.dumps(config))

    assert expected == trained_context_window(str(tmp_path))


@each_row("source", ["nobody/has-this-model", "./absent", "no model at all"])
def test_a_model_that_is_not_downloaded_has_none(source, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    assert trained_context_window(source) is None
