"""Servers in the front ends: the command line, the doctor and completion. None is started here."""

from pathlib import Path

import click
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from started_servers import sources_of

from specchat.app import tool_sources
from specchat.app.tool_sources import OfferedName, ToolSources, front_end_sources
from specchat.chat.events import Finished, Totals
from specchat.checks.health_checks import OK, WARN, CheckContext, run_checks
from specchat.cli.ask import ask
from specchat.cli.options import profile_options
from specchat.cli.session_options import session_request
from specchat.errors import SpecchatError
from specchat.repl.line_input import CommandPathCompleter
from specchat.tui.bottom_area import completions
from specchat_mcp.command import mcp
from specchat_mcp.server_settings import ServerSettings
from tests.processes import modules_after
from tests.scripted_session import ScriptedSession, play_host
from tests.test_profile import own_folder, write  # noqa: F401 (a fixture)

PLUGIN = Path(__file__).parents[1]
TEXT = "[mcp.git]\ncommand = ['/no/such/program']\n[mcp.web]\nurl = 'https://a.b'\n[mcp.off]\nenabled = false\n"


class Directory:
    """Servers that run already."""

    def prompts(self):
        return [OfferedName("mcp:git:review", "review a file", "PATH [FOCUS]")]

    def resources(self):
        return [OfferedName("@git:", "templates"), OfferedName("@git:notes://today", "the notes")]


def completed(text):
    found = CommandPathCompleter(Directory()).get_completions(Document(text), CompleteEvent())
    return [each.text for each in found]


def test_the_line_mode_completes_prompts_and_resources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert ["/mcp ", "/mcp:git:review "] == completed("/mc")
    assert ["git:", "git:notes://today"] == completed("see @gi")
    assert [] == completed("see gi")


def test_the_screen_completes_resources_after_what_is_typed(tmp_path):
    items = completions("see @git:n", {}, tmp_path, Directory().resources())

    assert [("git:notes://today", len("git:n"))] == [(each.text, each.replaced_length) for each in items]


def test_the_command_line_names_the_servers_of_its_process_and_starts_none(own_folder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(tool_sources, "_sources", ToolSources())
    path = write(own_folder, "mine", TEXT)
    requests = []
    command = click.command()(profile_options(lambda **options: requests.append(session_request(options))))

    command.main(["-P", str(path)], standalone_mode=False)

    shown = front_end_sources().by_name["mcp"].overview()
    assert shown.startswith("git (/no/such/program): not started\nweb (https://a.b): not started\n")
    assert {} == requests[0].settings.options


def test_specchat_mcp_lists_the_servers_and_fails_for_one_that_does_not_start(own_folder, capsys):  # noqa: F811
    path = write(own_folder, "mine", TEXT)

    mcp.main(["-P", str(path)], standalone_mode=False)
    assert "git (/no/such/program): not started\nweb (https://a.b): not started\n" in capsys.readouterr().out
    with pytest.raises(SpecchatError, match="MCP server git: No such file or directory"):
        mcp.main(["git", "-P", str(path)], standalone_mode=False)


def test_the_doctor_names_the_servers_and_starts_none(own_folder):  # noqa: F811
    path = write(own_folder, "mine", TEXT + "[mcp.key]\nurl = 'https://a.b'\nheaders = ['X-Key: ${NOT_SET}']\n")

    found = [each for each in run_checks(CheckContext(str(path), skips_measurements=True)) if "MCP" in each.check]

    assert [WARN, OK, WARN] == [each.status for each in found]
    assert "git: there is no program /no/such/program" == found[0].message
    assert "web: https://a.b; not started, specchat mcp web does it" == found[1].message
    assert "key: the environment has no variable NOT_SET" == found[2].message


def test_the_package_of_servers_is_imported_with_the_first_start_only():
    modules = modules_after(f"import sys; sys.path.append({str(PLUGIN)!r}); import specchat_mcp.servers")

    assert not {"mcp", "anyio", "httpx2", "torch"} & modules


def test_a_server_is_named_by_its_address_and_not_by_its_values():
    settings = ServerSettings("a", ("x", "y z"), env=(("TOKEN", "t1"),))

    assert "x 'y z'" == settings.address
    assert "t1" not in repr(settings)


def test_ask_attaches_resources_of_servers(demo, own_folder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(tool_sources, "_sources", sources_of(demo))
    monkeypatch.setattr("specchat.cli.session_options.use_sources", lambda _request: None)
    (own_folder / "a.txt").write_text("a file\n")
    session = ScriptedSession([[Finished("stop", Totals())]])
    options = ["-f", "@demo:notes://today", "-f", str(own_folder / "a.txt"), "What is in it?"]

    play_host(monkeypatch, lambda _profile: session)
    ask.main(options, standalone_mode=False)

    assert ["a file\n", "buy milk"] == sorted(file.text for file in session.requests[0].files)
    with pytest.raises(SpecchatError, match="MCP server demo: Unknown resource: notes://nothing"):
        ask.main(["-f", "@demo:notes://nothing", "What?"])
    assert 1 == len(session.requests)


def test_ask_knows_the_servers_of_its_profile_before_it_attaches(own_folder, monkeypatch):  # noqa: F811
    session = ScriptedSession()
    monkeypatch.setattr(tool_sources, "_sources", ToolSources())
    play_host(monkeypatch, lambda _profile: session)
    path = write(own_folder, "mine", TEXT)

    with pytest.raises(SpecchatError, match="MCP server git: No such file or directory"):
        ask.main(["-P", str(path), "-f", "@git:notes://today", "What?"], standalone_mode=False)
    assert not session.requests
