"""Settings of a conversation do not get lost: in any order, before and after an answer, after a resume."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from itertools import combinations
from threading import Event as Flag

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from specchat.app import chat_settings
from specchat.app.chat_state import ChatState
from specchat.app.command_registry import run_line
from specchat.chat.events import TextDelta
from specchat.cli.session_options import last_session_id
from specchat.devices import CPU
from specchat.history.history_reader import ASK
from specchat.host.client import Conversation, SessionRequest, connect
from specchat.hub.local_models import EMBEDDED
from specchat.hub.machine import Device, Machine
from specchat.profile.settings import Settings, read_settings
from tests.each_row import each_row
from tests.front import command

OTHER_MODEL = str(EMBEDDED / "draft")
LINES = {
    "/temperature 0.5": {"sampling.temperature": 0.5},
    "/top-p 0.7": {"sampling.top_p": 0.7},
    "/seed 7": {"sampling.seed": 7},
    "/variant plain": {"speculation.variant": "plain"},
    "/system Be brief.": {"prompt.system": "Be brief."},
    "/think off": {"prompt.thinking": "off"},
    "/max-tokens 9": {"limits.answer": 9},
    f"/model {OTHER_MODEL}": {"models.target": OTHER_MODEL},
    "/profile creative": {},
}
NAMES = list(LINES)
KEYS = tuple(key for values in LINES.values() for key in values)
OPTIONS = {  # beside -c, one after the other; those before another profile stay, as beside a new conversation
    ("-P", "creative"): {},
    ("--temperature", "0.25"): {"sampling.temperature": 0.25},
    ("--variant", "lookup"): {"speculation.variant": "lookup"},
    ("--target", OTHER_MODEL): {"models.target": OTHER_MODEL},
    ("--no-think",): {"prompt.thinking": "off"},
}
QUESTION = f"settings {' '.join(KEYS)}"


@pytest.fixture(autouse=True)
def roomy_host(runtime, monkeypatch):
    machine = Machine((Device(CPU, "a processor", 2**33, 2**33),))
    monkeypatch.setattr(chat_settings, "detect_machine", lambda: machine)


def after(lines: Iterable[str], values: dict[str, object] | None = None) -> dict[str, object]:
    """What holds after these lines: the last word on each key; a profile takes all words before it back."""
    values = values or of_profile("chat")
    for line in lines:
        values = {**(of_profile("creative") if line == "/profile creative" else values), **LINES[line]}
    return values


@cache
def of_profile(name: str) -> dict[str, object]:
    values = read_settings(name).values
    return {key: values[key] for key in KEYS}


def computed(conversation: Conversation) -> dict[str, object]:
    """What the engine computes with."""
    events = conversation.ask(QUESTION)
    return in_answer("".join(event.text for event in events if isinstance(event, TextDelta)))


def in_answer(text: str) -> dict[str, object]:
    return dict(zip(KEYS, json.loads(text), strict=True))


def check(conversation: Conversation, expected: dict[str, object], lines: object) -> None:
    shown = conversation.settings.values
    assert (lines, expected) == (lines, {key: shown[key] for key in KEYS})
    assert (lines, expected) == (lines, computed(conversation))


@each_row("pair", combinations(LINES, 2), shares=4)
def test_two_settings_in_every_order_hold_before_and_after_an_answer_and_after_a_resume(pair):
    chat = ChatState(Conversation())
    for line in pair:
        run_line(chat, line)
    check(chat.conversation, after(pair), pair)

    back = ChatState(Conversation(SessionRequest(chat.conversation.session_id)))
    chat.conversation.close()
    for line in reversed(pair):
        run_line(back, line)
    check(back.conversation, expected := after([*pair, *reversed(pair)]), pair)

    back.conversation.close()
    check(again := Conversation(SessionRequest(back.conversation.session_id)), expected, pair)
    again.close()


@pytest.mark.full
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.lists(some.sampled_from([*LINES, "ASK", "RESUME", "NEW HOST", "NEW"]), min_size=3, max_size=9))
def test_any_settings_hold_whatever_happens_between_them(steps):
    chat, said = ChatState(Conversation()), list[str]()
    check(chat.conversation, after(said), steps)  # an empty conversation is not stored, and a new host does not know it
    for step in steps:
        match step:
            case "ASK":
                check(chat.conversation, after(said), steps)
            case "RESUME":
                chat.conversation.close()
                chat = ChatState(Conversation(SessionRequest(chat.conversation.session_id)))
            case "NEW HOST":
                chat.conversation.call("shutdown")
            case "NEW":
                run_line(chat, "/new")
                check(chat.conversation, after(said), steps)
            case line:
                run_line(chat, line)
                said.append(line)
    check(chat.conversation, after(said), steps)
    chat.conversation.close()


def test_default_gives_back_one_key_and_leaves_the_others():
    chat = ChatState(Conversation(SessionRequest(settings=read_settings("creative", {"sampling.top_p": 0.6}))))
    for line in ("/temperature 0.1", "/top-p 0.2", "/variant plain"):
        run_line(chat, line)
    computed(chat.conversation)
    chat = ChatState(Conversation(SessionRequest(chat.conversation.session_id)))

    for line in ("/top-p default", "/temperature default"):
        assert "as the profile says" in run_line(chat, line).text
    own = of_profile("creative")
    check(chat.conversation, {**own, "sampling.top_p": 0.6, "speculation.variant": "plain"}, "default")


@each_row("first, second", [(NAMES[0], NAMES[1]), (NAMES[-1], NAMES[0]), (NAMES[-2], NAMES[3])], shares=3)
def test_the_line_mode_keeps_them_too_and_says_which_options_count_beside_a_resume(monkeypatch, first, second):
    lines = f"count 1\n{first}\n{second}\n{QUESTION}\n".encode()
    [answer] = [line for line in answers(command(monkeypatch, "chat", "--plain", stdin=lines)) if line[:1] == "["]
    expected = after([first, second])
    assert (first, second, expected) == (first, second, in_answer(answer))

    for option, changed in OPTIONS.items():
        ran = command(monkeypatch, "chat", "--plain", "-c", *option, stdin=QUESTION.encode())
        expected = {**(of_profile("creative") if option[0] == "-P" else expected), **changed}
        assert (option, expected) == (option, in_answer(answers(ran)[-1]))
        assert 1 == ran.err.count("this conversation goes on with"), ran.err
    kept = command(monkeypatch, "chat", "--plain", "-r", last_session_id(), stdin=QUESTION.encode())
    assert expected == in_answer(answers(kept)[-1])
    assert "goes on with" not in kept.err


def answers(ran) -> list[str]:
    assert 0 == ran.code, ran.err
    return [line for line in ran.out.decode().splitlines() if line.startswith(("[", "word"))]


def test_what_an_option_changes_beside_a_resume_is_checked_before_anything_starts(monkeypatch):
    computed(talk := Conversation())
    for option, message in (
        (("--temperature", "9"), "sampling.temperature must lie between 0 and 5"),
        (("--max-tokens", "99999999"), "limits.answer"),
        (("-P", "nobody"), "unknown profile"),
    ):
        ran = command(monkeypatch, "chat", "--plain", "-c", *option, stdin=QUESTION.encode())
        assert (2, True) == (ran.code, message in ran.err), ran.err
    assert of_profile("chat") == computed(talk)


def test_settings_travel_with_each_request_and_stay_with_the_conversation():
    talk, line = Conversation(), connect("test")
    computed(talk)
    mine = read_settings("creative").changed({"sampling.seed": 3})
    line.call("set_settings", {"session": talk.session_id, "settings": mine.to_json()})
    assert mine == Settings.from_json(line.call("open_session", {"session": talk.session_id})["settings"])

    assert of_profile("chat") == computed(talk)  # the client that asks says with which
    assert talk.settings == Settings.from_json(line.call("open_session", {"session": talk.session_id})["settings"])


def test_a_question_whose_model_cannot_be_loaded_is_not_stored(monkeypatch):
    stopped = Flag()
    for _event in Conversation(SessionRequest(kind=ASK)).ask("read", stopped):
        stopped.set()  # before the answer begins
    broken = command(monkeypatch, "ask", "-P", "broken", "hello")
    assert (7, "no such model") == (broken.code, broken.err.strip().removeprefix("specchat: "))
    assert 0 == command(monkeypatch, "ask", "hello").code

    assert ["hello"] == [row["name"] for row in connect("test").call("list_sessions", {})["sessions"]]
    talk = Conversation(SessionRequest(settings=read_settings("broken"), kind=ASK))
    [_, failed] = [list(talk.ask("hello"))[-1], list(talk.ask("once more"))[-1]]
    assert "no such model" == failed.message
    talk.use(read_settings())
    list(talk.ask("again"))
    assert ["again"] == [turn.request["text"] for turn in talk.turns()]
