"""Before another model is loaded, the user is asked: its name, size, and whether it is on this disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from specchat.app.agent.project_agent import AgentUI
from specchat.app.command_registry import ChatState, run_line
from specchat.app.model_loading import PendingModel, loading_question, pending_model, pending_models
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.keys import Models
from specchat.profile.settings import read_settings
from specchat.repl import terminal_ui


@pytest.fixture
def profile(tmp_path):
    """A profile with a model of its own, of 3 MiB on this disk."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(bytes(3 * 2**20))
    path = tmp_path / "other.toml"
    path.write_text(f'[models]\ntarget = "{model}"\nheads = ["nobody/head"]\n')
    return str(path)


@pytest.fixture
def chat_and_questions(runtime):
    """A chat, and what it asked before it loads models."""
    chat, questions = ChatState(Conversation()), list[str]()

    def may_load(question: str) -> bool:
        questions.append(question)
        return chat.conversation.settings.profile.speculation.variant == "plain"  # stands for a yes

    chat.ui = AgentUI(confirm=may_load)
    return chat, questions


def test_a_model_on_this_disk_is_weighed_by_its_files(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(2**20))

    assert PendingModel(str(tmp_path), 2**20, True) == pending_model(str(tmp_path))
    assert PendingModel(str(tmp_path / "a.bin"), 2**20, True) == pending_model(str(tmp_path / "a.bin"))


def test_one_that_is_not_here_is_weighed_by_the_catalog_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    known, unknown = pending_model("Qwen/Qwen3-8B"), pending_model("nobody/nothing")

    assert not known.is_on_disk
    assert "Qwen/Qwen3-8B (15.3 GiB, not on this disk)" == known.description
    assert "nobody/nothing (size unknown, not on this disk)" == unknown.description


def test_one_of_the_cache_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--nobody--small" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(bytes(5 * 2**20))

    assert "nobody/small (5 MiB, on this disk)" == pending_model("nobody/small").description


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (Models(), ["embedded", "embedded/draft"]),
        (Models(draft=""), ["embedded"]),
        (Models("org/a"), ["org/a"]),
        (Models("org/a", "org/b", ("org/head", "embedded")), ["org/a", "org/b", "org/head"]),
        (Models("org/a", "org/a"), ["org/a"]),
    ],
)
def test_every_model_with_weights_is_named_once(models, names):
    assert names == [load.name for load in pending_models(models)]


def test_what_ships_is_here():
    assert all(load.is_on_disk and load.size_bytes for load in pending_models(Models()))


def test_the_question_has_a_title_and_a_line_for_each_model():
    title, *lines = loading_question(Models()).split("\n")

    assert title == "this loads other models; go on?"
    assert [line.split()[0] for line in lines] == ["embedded", "embedded/draft"]
    assert all(line.endswith(" MiB, on this disk)") for line in lines)


@pytest.mark.parametrize(("answer", "is_yes"), [("y\n", True), (" YES \n", True), ("n\n", False), ("", False)])
def test_only_a_yes_is_one(answer, is_yes, monkeypatch):
    monkeypatch.setattr(terminal_ui, "prompt_user", lambda _question: answer)

    assert is_yes == terminal_ui.confirm("this loads other models; go on?\n  embedded")


def test_a_no_keeps_the_profile_and_a_yes_changes_it(chat_and_questions, profile):
    chat, questions = chat_and_questions

    assert "no model is loaded; the profile stays chat" == run_line(chat, f"/profile {profile}").text
    assert "chat" == chat.conversation.call("session_info")["profile"]
    run_line(chat, "/variant plain")
    assert "; other models load" in run_line(chat, f"/profile {profile}").text
    assert profile == chat.conversation.call("session_info")["profile"]
    model = f"  {profile.replace('other.toml', 'model')} (3 MiB, on this disk)"
    assert [model] * 2 == [question.split("\n")[1] for question in questions]


def test_a_change_that_loads_nothing_does_not_ask(chat_and_questions, tmp_path):
    chat, questions = chat_and_questions
    served = tmp_path / "served.toml"
    served.write_text('[models]\ntarget = "far"\nbackend = "vllm"\nurl = "http://127.0.0.1:1/v1"\n')

    assert "profile code" == run_line(chat, "/profile code").text
    assert f"profile {served}" == run_line(chat, f"/profile {served}").text
    assert [] == questions


def test_without_a_terminal_the_profile_is_changed(runtime, profile):
    assert "; other models load" in run_line(ChatState(Conversation()), f"/profile {profile}").text


def test_models_that_were_chosen_for_the_conversation_are_not_loaded_again(runtime, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    questions = list[str]()
    chosen = {"models.target": str(model), "models.draft": ""}
    chat = ChatState(Conversation(SessionRequest(settings=read_settings("chat", chosen))))
    chat.ui = AgentUI(confirm=lambda question: not questions.append(question))

    assert "profile plain" == run_line(chat, "/profile plain").text
    assert [] == questions


def test_ctrl_c_is_a_no(monkeypatch):
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(readline=interrupted))

    assert not terminal_ui.confirm("this loads other models; go on?\n  embedded")


def test_a_folder_that_cannot_be_read_has_no_known_size(tmp_path, monkeypatch):
    def refused(*_names: str) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "rglob", refused)

    assert PendingModel(str(tmp_path), None, True) == pending_model(str(tmp_path))
