"""`specchat -p TEXT --json` with tools: the rules of `ask`, calls as updates, and one result."""

from __future__ import annotations

import json
import sys

import pytest

from specchat.cli.main import run
from tests.app.agent.scripted import REPOSITORY
from tests.app.agent.test_front_ends import WRITE, made, script, shared_host, world  # noqa: F401 (fixtures)
from tests.front import Bytes

READ = made("read", path="README.md")


@pytest.fixture
def printed(world, monkeypatch, capsys):  # noqa: F811 (the fixture)
    """The exit code, the lines of stdout and the text of stderr of `specchat -p`."""

    def printed(*arguments: str):
        monkeypatch.setattr(sys, "stdin", Bytes(b""))
        code = run(["-p", *arguments])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return printed


def updates(lines) -> list[dict]:
    sent = [line["update"] for line in lines if line["type"] == "update"]
    return [update for update in sent if update["sessionUpdate"].startswith("tool_call")]


def test_no_tool_is_used_without_an_option(printed, world):  # noqa: F811
    code, lines, _err = printed(script(WRITE, "so"), "--json", "--allow", "write")

    assert (0, []) == (code, updates(lines))
    assert not (world / "shop/new.py").exists()


def test_a_call_without_a_rule_is_refused_on_stderr_and_the_model_goes_on(printed, world):  # noqa: F811
    code, lines, err = printed(script(WRITE, "all right"), "--json", "--agent")

    assert (0, "all right") == (code, lines[-1]["result"])
    assert "needs the consent of the user, who cannot be asked here; --allow write gives it" in err
    assert "failed" == updates(lines)[-1]["status"]
    assert not (world / "shop/new.py").exists()


def test_a_call_with_a_rule_is_made_and_shown_with_its_diff(printed, world):  # noqa: F811
    code, lines, _err = printed(script(READ, WRITE, "all done"), "--json", "--agent", "--allow", "write:shop/*")

    read, read_end, write, write_end = updates(lines)
    assert (0, "all done", False) == (code, lines[-1]["result"], lines[-1]["is_error"])
    assert ("read", "edit") == (read["kind"], write["kind"])
    assert [{"path": str(world / "README.md")}] == read["locations"]
    assert REPOSITORY["README.md"] == read_end["content"][0]["content"]["text"]
    diff = {"type": "diff", "path": str(world / "shop/new.py"), "newText": "A = 1\n"}
    assert diff == write_end["content"][0]
    assert "A = 1\n" == (world / "shop/new.py").read_text()


def test_plan_only_reads_whatever_is_allowed(printed, world):  # noqa: F811
    code, _lines, err = printed(script(WRITE, "a plan"), "--json", "--plan", "--allow", "write")

    assert 0 == code
    assert "no such tool" in err
    assert not (world / "shop/new.py").exists()


def test_work_that_ended_early_is_an_error_with_its_reason(printed):
    code, lines, _err = printed(script(READ, READ, READ), "--json", "--plan")

    assert 1 == code
    assert "ended_early" == lines[-1]["error"]["code"]
    assert "same call 3 times" in lines[-1]["error"]["message"]


def test_the_numbers_are_those_of_all_answers(printed):
    _code, lines, _err = printed(script(READ, "all done"), "--json", "--plan")

    finished = [line for line in lines if line.get("event") == "finished"]
    assert 2 == len(finished)
    assert lines[-1]["usage"]["output_tokens"] == sum(line["totals"]["completion_tokens"] for line in finished)
