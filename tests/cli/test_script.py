"""Lines of JSON for programs: what stands in each, and what odd input comes to."""

from __future__ import annotations

import json

import pytest

from specchat.errors import HostError
from specchat.host.client import Conversation
from tests.each_row import each_row
from tests.front import command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)


def lines_of(ran) -> list[dict]:
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.usefixtures("runtime")
def test_the_first_line_says_who_answers_and_the_last_one_what_came_of_it(monkeypatch):
    ran = command(monkeypatch, "-p", "count 2", "--json", "--target", "mine", "--draft", "")
    first, *_, last = lines_of(ran)

    assert first.items() >= {"type": "init", "v": 2, "model": "mine", "draft": ""}.items()
    assert first["session_id"] == last["session_id"]
    assert last.items() >= {"type": "result", "is_error": False, "stop_reason": "end_turn", "num_turns": 1}.items()
    assert last["usage"].keys() == {"input_tokens", "output_tokens", "cached_tokens"}
    assert {"draft_tokens", "accepted_tokens", "acceptance_rate", "steps"} <= last["spec"].keys()
    assert {"duration_ms", "ttft_ms", "tokens_per_second"} <= last.keys()


@pytest.mark.usefixtures("runtime")
def test_a_loop_ends_with_a_reason_of_the_protocol(monkeypatch):
    *_, finished, last = lines_of(command(monkeypatch, "-p", "agent\nrepeat read {}", "--json"))

    assert ("repetition", "max_tokens") == (finished["finish_reason"], last["stop_reason"])


@pytest.mark.usefixtures("runtime")
def test_half_a_character_is_refused_and_nobody_waits_for_its_answer(monkeypatch):
    ran = command(monkeypatch, "-p", "caf\udce9", "--json")

    assert ran.code == 2
    assert lines_of(ran)[-1]["error"]["code"] == "usage"


def test_lines_of_questions_are_no_input(monkeypatch):
    ran = command(monkeypatch, "-p", "hello", "--json", "--input", "jsonl", stdin=b'{"type":"user","text":"count 1"}')

    assert (2, b"") == (ran.code, ran.out)
    assert "--input" in ran.err


@pytest.mark.usefixtures("runtime")
@each_row("arguments", [("-p", "count 1"), ("-p", "/edit a.txt replace a b", "--edit", "auto")])
def test_an_engine_that_disconnects_is_an_error_line_with_its_exit_code(monkeypatch, tmp_path, arguments):
    def disconnect(*_arguments):
        raise ConnectionResetError("the host closed the connection")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    monkeypatch.setattr(Conversation, "ask", disconnect)
    ran = command(monkeypatch, *arguments, "--json")

    assert ran.code == HostError.exit_code
    assert lines_of(ran)[-1]["error"]["message"].startswith("the engine process closed the connection")


@pytest.mark.usefixtures("runtime")
def test_thinking_stands_in_lines_of_its_own_and_not_in_the_result(monkeypatch):
    lines = lines_of(command(monkeypatch, "-p", "think 3", "--json"))
    updates = [line["update"] for line in lines if line["type"] == "update"]
    texts = {
        kind: "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)
        for kind in ("agent_thought_chunk", "agent_message_chunk")
    }

    assert texts == {"agent_thought_chunk": "thought0 thought1 thought2 ", "agent_message_chunk": "so it is"}
    assert lines[-1]["result"] == "so it is"


@pytest.mark.usefixtures("runtime")
def test_what_is_waited_for_stands_in_the_words_of_every_front_end_in_its_lines(monkeypatch):
    lines = [json.loads(line) for line in command(monkeypatch, "script", "-p", "hello", "--json").out.splitlines()]

    words = {line["event"]: line["text"] for line in lines if "text" in line}
    assert words.pop("prefill") == "reading 3 tokens…"
    assert set(words.values()) <= {"loading the target model…"}  # unless it is loaded already


@pytest.mark.usefixtures("runtime")
def test_a_folder_without_a_conversation_has_nothing_to_continue_and_says_so(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    first = command(monkeypatch, "script", "-p", "hello", "-c")
    second = command(monkeypatch, "script", "-p", "hello", "-c")

    assert "no conversation of this folder yet; this is its first one" in first.err
    assert "no conversation" not in second.err
    assert first.code == second.code == 0
