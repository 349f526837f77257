"""What a chat may change of its profile: sampling, the system prompt, the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specchat.app import chat_settings
from specchat.app.chat_settings import CHAT_SETTINGS
from specchat.app.command_registry import ChatState, run_line
from specchat.devices import CPU
from specchat.errors import ModelError, ProfileError, UsageError
from specchat.host.client import Conversation, SessionRequest
from specchat.hub.local_models import EMBEDDED, locate_model
from specchat.hub.machine import Device, Machine
from specchat.hub.runnable_models import local_choices
from specchat.profile.settings import read_settings
from tests.front import events_of

GIB = 2**30


@pytest.fixture
def chat(runtime):
    return ChatState(Conversation())


@pytest.fixture
def model():
    """A folder with a whole model that is not the one of the profile."""
    return str(EMBEDDED / "draft")


@pytest.fixture
def free_gib(monkeypatch):
    def have(count: float) -> None:
        device = Device(CPU, "a processor", int(count * GIB), int(count * GIB))
        monkeypatch.setattr(chat_settings, "detect_machine", lambda: Machine((device,)))

    return have


def do(chat: ChatState, line: str) -> str:
    reply = run_line(chat, line)
    if reply.request:
        return events_of(chat, reply.request)[-1].text
    return reply.text


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("/temperature 0.7", "sampling.temperature", 0.7),
        ("/top-p 0.9", "sampling.top_p", 0.9),
        ("/top-k 40", "sampling.top_k", 40),
        ("/min-p 0.1", "sampling.min_p", 0.1),
        ("/repetition-penalty 1.1", "sampling.repetition_penalty", 1.1),
        ("/max-tokens 5", "limits.answer", 5),
        ("/think off", "prompt.thinking", "off"),
        ("/thinking-tokens 50", "prompt.thinking_tokens", 50),
        ("/system Be brief.\nBe kind.", "prompt.system", "Be brief.\nBe kind."),
    ],
)
def test_a_key_is_changed_shown_kept_and_given_back(chat, line, key, value):
    command, before = line.split()[0], chat.conversation.settings.values[key]
    do(chat, line)
    do(chat, "hello")

    reopened = Conversation(SessionRequest(session_id=chat.conversation.session_id))
    assert reopened.settings.values[key] == value
    assert " ".join(str(value).split()) in do(chat, command)
    assert "as the profile says" in do(chat, f"{command} default")
    assert chat.conversation.settings.values[key] == before


def test_what_was_chosen_goes_along_to_a_new_conversation(chat):
    do(chat, "/temperature 0.7")
    do(chat, "/new")

    assert chat.conversation.settings.values["sampling.temperature"] == 0.7


def test_another_profile_takes_the_changes_back_but_not_the_options_of_the_command_line(runtime):
    options = {"sampling.top_k": 3}
    chat = ChatState(Conversation(SessionRequest(settings=read_settings("chat", options))))
    do(chat, "/temperature 0.7")
    do(chat, "/top-k 9")
    do(chat, "/profile code")

    values = chat.conversation.settings.values
    assert (values["sampling.temperature"], values["sampling.top_k"]) == (0.0, 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/temperature warm", "/temperature needs a number, or 'default', not 'warm'"),
        ("/top-k 1.5", "/top-k needs a whole number"),
        ("/temperature 99", "sampling.temperature must lie between 0 and 5"),
        ("/max-tokens 999999", "limits.answer"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_and_changes_nothing(chat, line, message):
    before = chat.conversation.settings.values
    with pytest.raises((UsageError, ProfileError), match=message) as caught:
        do(chat, line)

    assert "\n" not in str(caught.value)
    assert chat.conversation.settings.values == before


def test_settings_lists_all_of_them(chat):
    do(chat, "/top-p 0.5")
    shown = do(chat, "/settings")

    assert all(f"/{name} " in shown for name in CHAT_SETTINGS)
    assert "/top-p               0.5" in shown


def test_another_model_is_chosen_and_the_conversation_goes_on(chat, model, free_gib):
    free_gib(8)
    do(chat, "count 2")
    assert "reads the conversation again" in do(chat, f"/model {model}")

    assert chat.conversation.model == model
    assert "count 2=" in do(chat, "recall")
    values = chat.conversation.settings.values
    assert (values["models.draft"], values["models.heads"]) == ("auto", ("auto",))
    do(chat, "/model default")
    assert chat.conversation.settings.values["models.target"] == "embedded"


def test_a_model_that_does_not_fit_the_memory_is_refused_with_the_numbers(chat, model, free_gib):
    free_gib(0.00001)
    with pytest.raises(ModelError, match=r"does not fit: its weights alone take .* the model stays"):
        do(chat, f"/model {model}")

    assert chat.conversation.settings.values["models.target"] == "embedded"


def test_a_model_that_cannot_read_so_long_a_conversation_is_refused(chat, model, free_gib, monkeypatch):
    free_gib(8)
    do(chat, "count 2")
    located = locate_model(model)
    short = replace(located, architecture=replace(located.architecture, max_position_embeddings=2))
    monkeypatch.setattr(chat_settings, "locate_model", lambda _name: short)
    with pytest.raises(ProfileError, match=r"reads at most 2 tokens and this conversation has .*compact"):
        do(chat, f"/model {model}")


def test_a_model_that_is_not_here_names_the_command_that_fetches_it(chat):
    with pytest.raises(ModelError, match="'specchat models pull Qwen/Qwen3-8B' downloads it"):
        do(chat, "/model Qwen/Qwen3-8B")
    with pytest.raises(ModelError, match="not in the catalog and not on this disk"):
        do(chat, "/model nobody/nothing")


def test_models_are_listed_with_size_fit_and_drafters(chat):
    embedded = next(each for each in local_choices() if each.name == "embedded")

    assert "a draft model" in embedded.drafters
    assert f"embedded  {embedded.size}" in do(chat, "/model")


def test_a_drafter_that_cannot_run_is_refused_with_what_it_needs(chat):
    do(chat, "hello")  # the models are loaded
    with pytest.raises(ProfileError, match="variant 'dflash' is of a plugin"):
        do(chat, "/variant dflash")
    with pytest.raises(ProfileError, match="unknown variant 'magic'"):
        do(chat, "/variant magic")

    assert "variant: plain" == do(chat, "/variant plain")
