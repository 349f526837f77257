"""Tools, prompts and texts that a plugin brings: consent as for our own tools, and faults that stop nothing."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from specchat.app.chat_state import ChatState
from specchat.app.command_registry import prompt_commands, run_line
from specchat.app.tool_sources import SourceRequest, ToolSources
from specchat.checks.health_checks import WARN, CheckContext, run_checks
from specchat.errors import UsageError
from specchat.profile.keys import McpServer, Profile
from tests.app.agent.conftest import empty_repository, project  # noqa: F401 (fixtures)
from tests.app.agent.test_front_ends import Keyboard, chat, made, script, shared_host, world  # noqa: F401 (fixtures)
from tests.front import request_of, type_line
from tests.plugins.conftest import rediscover
from tests.scripted_session import ScriptedSession

WEATHER = """
from pathlib import Path

@hookimpl
def register_tool_sources():
    return [Extension("weather", "the weather", "weather:build")]

def build(request):
    from specchat.app.agent.agent_tool import Effect, ToolOutcome
    from specchat.app.tool_sources import OfferedName, SourceCheck, ToolSource
    from specchat.chat.tools import Tool

    class Forecast:
        tool, effect = Tool("forecast", "the weather of a day", '{"type": "object"}'), Effect.EXTERNAL
        def describe(self, arguments): return "forecast of today"
        def run(self, arguments, cancelled):
            Path(LOG).write_text("asked")
            return ToolOutcome("rain")

    class Weather(ToolSource):
        def tools(self, cancelled): return [Forecast()]
        def prompts(self): return [OfferedName("weather:a:trip", "what to pack", "WHERE")]
        def prompt(self, name, argument, cancelled): return f"What do I pack for {argument}?"
        def resources(self): return [OfferedName("@weather:today", "today")]
        def loader(self, name, cancelled): return {"weather": lambda rest: f"{rest}: rain"}.get(name)
        def checks(self): return [SourceCheck("weather", "no sensor", True)]
        def close(self): Path(LOG).write_text("closed")

    return Weather()
"""
BROKEN = WEATHER.replace("return Weather()", "return 5").replace("weather", "broken")
RAISING = """
@hookimpl
def register_tool_sources():
    return [Extension("raising", "nothing", "raising:build")]

def build(request):
    from specchat.app.tool_sources import ToolSource
    class Raising(ToolSource):
        def __getattribute__(self, name): raise RuntimeError(name)
    return Raising()
"""
GIT = Profile(mcp=(McpServer("git", ("git-mcp",)),))
INSTALLS = r"'pip install \./plugins/specchat-mcp' installs it"


@pytest.fixture
def log(install, tmp_path):
    path = tmp_path / "log"
    install("weather", f"LOG = {str(path)!r}\n{WEATHER}")
    return path


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "")
    rediscover()
    yield
    rediscover()


def talk(sources):
    return ChatState(ScriptedSession(), sources=sources)


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_tool_of_a_plugin_asks_before_it_runs(log, chat, capsys, monkeypatch, answer):  # noqa: F811
    keyboard = Keyboard(monkeypatch, answer)
    chat.sources = ToolSources()

    type_line(chat, "/agent on")
    type_line(chat, script(made("forecast"), "all done"))

    assert "all done\n" == capsys.readouterr().out
    assert ["always allow forecast" in each for each in keyboard.questions] == [True]
    assert (answer == "y\n") == log.exists()


def test_a_plan_has_no_tool_of_a_plugin(log, chat, capsys, monkeypatch):  # noqa: F811
    Keyboard(monkeypatch)
    chat.sources = ToolSources()

    type_line(chat, "/agent plan")
    type_line(chat, script(made("forecast"), "all done"))

    assert "there is no tool 'forecast'" in capsys.readouterr().err
    assert not log.exists()


def test_prompts_and_texts_of_a_plugin_are_typed_as_our_own(log):
    front_end = talk(ToolSources())

    assert "What do I pack for Rome?" == run_line(front_end, "/weather:a:trip Rome").request.text
    assert "WHERE" == prompt_commands(front_end.sources)["weather:a:trip"].arguments
    assert ["@weather:today"] == [each.name for each in front_end.sources.resources()]
    assert "today: rain" == request_of(front_end, "pack for @weather:today?").files[0].text
    assert "/nothing:a:b c" == run_line(front_end, "/nothing:a:b c").request.text
    assert [("no sensor", True)] == [(each.message, each.is_problem) for each in front_end.sources.checks()]
    front_end.sources.close()
    assert "closed" == log.read_text()


def test_a_source_is_built_when_something_of_it_is_needed(log, monkeypatch):
    front_end = talk(ToolSources())
    monkeypatch.setattr("specchat.app.tool_sources.find_extensions", lambda _kind: pytest.fail("looked up"))

    assert not request_of(front_end, "why is a@b.c no name?").files
    assert not front_end.sources.take_notices()
    front_end.sources.close()
    assert not log.exists()


def test_a_source_that_fails_is_one_line_and_stops_no_other(install, log):
    install("broken", BROKEN)
    install("raising", RAISING)
    sources = ToolSources()

    assert ["forecast"] == [each.tool.name for each in sources.tools(Event())]
    assert [] == sources.allow_rules()
    assert sources.loader("weather")
    broken, raising = sources.take_notices()
    assert "plugin broken: 'broken' returned a int, which is no ToolSource" == broken
    assert raising.startswith("the source of tools 'raising' failed: RuntimeError: ")


def test_servers_of_a_profile_without_their_plugin_are_one_line_that_installs_it(bare):
    sources = ToolSources(SourceRequest(GIT))
    front_end = talk(sources)

    for line in ("/mcp", "/mcp:git:review", "what is in @git:notes://today?"):
        with pytest.raises(UsageError, match=INSTALLS):
            request_of(front_end, line)
    assert not sources.tools(Event())
    assert 1 == len(sources.take_notices())
    assert not sources.take_notices()
    assert not ToolSources().take_notices()


def test_the_doctor_says_that_the_plugin_of_servers_is_missing(bare, tmp_path):
    path = Path(tmp_path, "mine.toml")
    path.write_text("[mcp.git]\ncommand = ['git-mcp']\n")

    found = [each for each in run_checks(CheckContext(str(path), skips_measurements=True)) if each.check == "tools"]

    assert [WARN] == [each.status for each in found]
    assert "pip install ./plugins/specchat-mcp" in found[0].message
