"""The command registry and the line mode without a terminal."""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import pairwise

import pytest

from specchat.app.command_registry import (
    HELP_GROUPS,
    ChatState,
    CommandInfo,
    help_text,
    line_mode_commands,
    run_line,
)
from specchat.chat.events import TextDelta
from specchat.context.at_names import FileAccess
from specchat.errors import UsageError
from specchat.host.client import Conversation
from specchat.repl.answer_printer import AnswerPrinter
from specchat.repl.line_input import read_block
from specchat.terminal import guarded_terminal
from specchat.tui.screen_commands import all_commands
from tests.front import Bytes, command, events_of, request_of

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def chat():
    return ChatState(Conversation())


def do(chat: ChatState, line: str) -> str:
    """The answer to a request, or the text of a command."""
    reply = run_line(chat, line)
    if not reply.request:
        return reply.text
    return events_of(chat, reply.request)[-1].text


def test_help_has_groups_and_other_commands_at_their_end():
    lines = help_text([*line_mode_commands().values(), CommandInfo("shout", "", "of a plugin")]).splitlines()

    assert [title for before, title in pairwise(lines) if not before] == [*HELP_GROUPS, "More"]
    assert lines[-1] == "/shout   of a plugin"
    assert {name for names in HELP_GROUPS.values() for name in names} <= set(all_commands())


def test_help_names_every_command(chat):
    shown = do(chat, "/help")

    assert all(f"/{name} " in shown and each.help in shown for name, each in line_mode_commands().items())


def test_an_unknown_command_names_the_nearest(chat):
    with pytest.raises(UsageError, match="did you mean /retry"):
        run_line(chat, "/rety")


def test_a_path_is_a_question_and_no_command(chat):
    assert "/usr/bin is what?" == run_line(chat, "/usr/bin is what?").request.text


def test_retry_samples_again_and_back_removes_the_turn(chat):
    first = do(chat, "hello")

    assert first != (second := do(chat, "/retry"))
    assert "you said 'hello' with seed" in second
    assert 1 == len(chat.conversation.turns())
    assert "removed: hello" == do(chat, "/back")
    assert [] == chat.conversation.turns()
    with pytest.raises(UsageError, match="has no requests"):
        do(chat, "/retry")


def test_a_seed_fixes_all_until_it_is_given_back(chat):
    do(chat, "/seed 7")
    assert do(chat, "hello") == do(chat, "/retry")
    do(chat, "/seed default")
    assert do(chat, "hello") != do(chat, "/retry")


@pytest.mark.parametrize("line", ["/seed x", "/temperature warm", "/open", "/open nothing", "/rename", "/file absent"])
def test_a_command_that_makes_no_sense_is_one_line(chat, line):
    with pytest.raises(UsageError) as caught:
        run_line(chat, line)

    assert "\n" not in str(caught.value)


def test_files_go_with_the_next_question_only(chat, tmp_path):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "b.txt").write_text("older")
    do(chat, f"/file {tmp_path / 'a.txt'}")

    first, second = (
        request_of(chat, f"see @{tmp_path / 'b.txt'}, please"),
        request_of(chat, "and @home? @nobody"),
    )

    assert ["old", "older"] == [file.text for file in first.files]
    assert () == second.files


def test_a_file_is_looked_for_where_the_front_end_looks(chat, tmp_path):
    (tmp_path / "kept.txt").write_text("kept", encoding="utf-8")
    chat.access = FileAccess(tmp_path)

    assert "kept.txt is attached to the next request" == do(chat, "/file kept.txt")


def test_sessions_are_listed_searched_opened_forked_and_deleted(chat):
    do(chat, "hello")
    first = chat.conversation.session_id
    do(chat, "/new")
    do(chat, "other")

    assert ["other", "hello"] == [line.split("  ")[1] for line in do(chat, "/sessions").splitlines()]
    assert do(chat, "/sessions hell").startswith(first)
    assert do(chat, f"/open {first}").startswith("> hello\nyou said 'hello'")
    do(chat, "/fork")
    assert do(chat, "/show").startswith("> hello")
    assert first != chat.conversation.session_id
    do(chat, "/rename Copy")
    assert "Copy" in do(chat, "/sessions")
    do(chat, "/delete")
    assert "Copy" not in do(chat, "/sessions")
    assert "Copy" in do(chat, "/restore")


def test_stats_and_why_have_numbers(chat):
    assert "this conversation has no answer yet" == do(chat, "/why")
    do(chat, "hello")

    assert "assumed from the kind of request, not measured: because it is a fake" in do(chat, "/why")
    assert "tokens/s" in do(chat, "/stats")


def test_a_block_of_several_lines_is_one_text():
    lines = iter(["two\n", 'three"""\n', "four\n"])

    assert "one\ntwo\nthree" == read_block('"""one\n', lambda: next(lines))
    assert "alone" == read_block('"""alone"""\n', lambda: next(lines))
    assert "plain" == read_block("plain\n", lambda: next(lines))


def test_control_characters_of_a_model_do_not_reach_the_terminal(monkeypatch):
    terminal = Bytes(is_terminal=True)
    monkeypatch.setattr(sys, "stdout", terminal)
    with guarded_terminal():
        printer = AnswerPrinter()
        printer.on_event(TextDelta("a\x1b]52;c;x\x07b\r\n"))
        printer.close()

    assert "a␛]52;c;x␇b\n" == terminal.content().decode()


def test_a_question_of_the_command_line_comes_first(monkeypatch):
    ran = command(monkeypatch, "chat", "good", "morning", stdin=b"hello\n")

    assert ran.out.decode().index("you said 'good morning'") < ran.out.decode().index("you said 'hello'")


def test_the_line_mode_answers_a_pipe(monkeypatch):
    ran = command(monkeypatch, "chat", "--seed", "3", stdin=b'hello\n/bad\nfail\n"""two\nlines"""\n/quit\nnever\n')

    assert 0 == ran.code
    said = ran.out.decode()
    assert said.startswith("you said 'hello' with seed")
    assert r"you said 'two\nlines'" in said
    assert "never" not in said
    assert "unknown command /bad" in ran.err
    assert "specchat: too long" in ran.err


def test_a_conversation_is_continued(monkeypatch):
    chat = partial(command, monkeypatch, "chat")
    chat(stdin=b"hello\n")

    assert b"turn 1" in chat("--continue", stdin=b"count 2\n").out
    assert b"turn 2" in chat("-c", stdin=b"count 2\n").out


def test_json_lines_carry_the_same_text_and_end_with_a_result(monkeypatch):
    ran = command(monkeypatch, "script", "-p", "count 3", "--json")
    lines = [json.loads(line) for line in ran.out.splitlines()]

    texts = [line["update"]["content"]["text"] for line in lines if line["type"] == "update"]
    result = lines[-1]
    assert ("init", 2) == (lines[0]["type"], lines[0]["v"])
    assert ("result", "end_turn", False) == (result["type"], result["stop_reason"], result["is_error"])
    assert result["result"] == "".join(texts)
    assert result["result"].startswith("word0 word1 seed")
    assert ({"input_tokens": 3, "output_tokens": 6, "cached_tokens": 0}, 3) == (
        result["usage"],
        result["spec"]["steps"],
    )
    assert "" == ran.err


@pytest.mark.parametrize("arguments", [("chat",), ()], ids=str)
def test_a_chat_without_a_terminal_and_without_input_is_one_line(monkeypatch, arguments):
    ran = command(monkeypatch, *arguments, stdin=b"")

    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.splitlines()[-1] == (
        "specchat: standard input is empty; pipe a question in, or give one as an argument"
    )


@pytest.mark.parametrize("given", [["-r", "zzzz"], ["chat", "-r", "zzzz", "--plain"]], ids=str)
def test_an_unknown_conversation_is_one_line_before_anything_is_drawn_or_started(monkeypatch, given):
    assert command(monkeypatch, *given, stdin=b"").err == "specchat: no conversations yet; 'specchat' begins one\n"
    command(monkeypatch, "chat", stdin=b"hello\n")
    monkeypatch.setattr("specchat.cli.chat.open_host_conversation", None)
    monkeypatch.setattr("specchat.cli.chat.can_show_screen", None)

    ran = command(monkeypatch, *given, stdin=b"hello\n")

    assert (ran.code, ran.out) == (2, b"")
    assert ran.err == "specchat: no conversation 'zzzz', or several begin with it; see 'specchat sessions list'\n"


def test_the_host_can_be_looked_at_and_ended(monkeypatch):
    host = partial(command, monkeypatch, "host")
    sessions = partial(command, monkeypatch, "sessions", "list")

    assert "no conversations yet" in sessions().err
    assert b"no engine process" in host("status").out
    assert b"no model loaded" in host("start").out
    assert b"unloaded" in host("status").out
    command(monkeypatch, "chat", stdin=b"hello\n")
    assert b"  hello\n" in sessions().out
    assert b"(you said 'hello'" in sessions("said").out
    monkeypatch.setenv("COLUMNS", "60")
    lines = sessions(on_terminal=True).out.decode().splitlines()
    assert len(lines) > 1 and all(len(line) <= 60 or len(line.split()) == 1 for line in lines)
    assert "none is found; 'specchat sessions list' shows all that are not deleted\n" == sessions("zebra").err
    assert b"stopped (process" in host("stop").out
    assert b"no engine process" in host("stop").out
    assert b"  hello\n" in sessions().out
    assert b"no engine process" in host("status").out
