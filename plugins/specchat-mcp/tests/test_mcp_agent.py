"""Tools of a server in the agent of the line mode, over the fake host: the script stands in the question."""

import pytest
from started_servers import broken, sources_of

from tests.app.agent.conftest import empty_repository, project  # noqa: F401 (fixtures)
from tests.app.agent.test_front_ends import Keyboard, chat, made, script, shared_host, world  # noqa: F401 (fixtures)
from tests.front import type_line

ADD, DIE = made("demo__add", a=2, b=3), made("broken__go")


@pytest.fixture
def work(chat, capsys):  # noqa: F811
    def run(servers, *lines):
        chat.sources = sources_of(servers)
        type_line(chat, "/agent on")
        type_line(chat, script(*lines))
        return capsys.readouterr()

    return run


def test_a_call_asks_and_its_result_goes_back_to_the_model(work, demo, monkeypatch):
    keyboard = Keyboard(monkeypatch, "y\n")

    out, err = work(demo, made("demo__hostile", a=7), "all done")

    assert "all done\n" == out
    assert 'MCP server demo: hostile {"a": 7}' in err
    assert "always allow demo__hostile" in keyboard.questions[0]


def test_the_question_shows_the_whole_arguments(work, demo, monkeypatch):
    Keyboard(monkeypatch, "n\n")

    _out, err = work(demo, made("demo__hostile", a=10**3000), "all right")

    assert f'MCP server demo: hostile {{"a": {10**3000}}}' in err


def test_a_declined_call_does_not_reach_the_server(work, demo, monkeypatch):
    keyboard = Keyboard(monkeypatch, "n\n")

    work(demo, made("demo__die"), "all right")

    assert 1 == len(keyboard.questions)
    assert "demo__die" in demo.overview() and "running" in demo.overview()


def test_an_allowed_tool_runs_without_a_question(work, demo, monkeypatch):
    keyboard = Keyboard(monkeypatch)

    out, err = work(demo, ADD, "all done")

    assert [] == keyboard.questions
    assert 'MCP server demo: add {"a": 2, "b": 3}: 5' in err
    assert "all done\n" == out


def test_a_server_that_dies_in_a_call_is_an_error_for_the_model_and_the_work_goes_on(work, start, monkeypatch):
    Keyboard(monkeypatch, "y\n")

    out, err = work(start(broken("dies")), DIE, "all done")

    assert "all done\n" == out
    assert "ended with exit code 3: out of memory" in err


def test_a_server_that_does_not_start_is_one_line_and_the_work_goes_on(work, start):
    out, err = work(start(broken("ends at once")), "all done")

    assert "all done\n" == out
    assert 1 == err.count("MCP server broken: ended with exit code 1: no licence")
