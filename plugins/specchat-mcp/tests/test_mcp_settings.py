"""Servers in profiles: what may stand there, what wins, and what of it is known where."""

import json

import pytest

from specchat.cli.config import show
from specchat.cli.options import ProfileLayers
from specchat.cli.project_trust import summarize_project
from specchat.errors import ProfileError
from specchat.profile.profile_files import load_profile, read_profile_chain
from specchat.profile.project_file import find_project_file
from specchat_mcp.server_settings import profile_servers
from tests.test_profile import own_folder, write  # noqa: F401 (a fixture)

GIT = '[mcp.git]\ncommand = ["git-mcp", "--stdio"]\nenv = ["GIT_TOKEN", "LEVEL=debug"]\nallow = ["status"]\n'
WEB = '[mcp.web]\nurl = "https://a.b/mcp"\nheaders = ["Authorization: Bearer ${WEB_TOKEN}"]\n'


def servers(folder, text, environment=None):
    return profile_servers(load_profile(str(write(folder, "mine", text))).mcp, environment or {})


def test_variables_are_named_in_files_and_read_from_the_environment(own_folder):  # noqa: F811
    git, web = servers(own_folder, GIT + WEB, {"GIT_TOKEN": "t1", "WEB_TOKEN": "t2"})

    assert ("git-mcp", "--stdio") == git.command
    assert (("GIT_TOKEN", "t1"), ("LEVEL", "debug")) == git.env
    assert (("Authorization", "Bearer t2"),) == web.headers
    assert "t1" not in repr(git) and "t2" not in repr(web)
    assert "" == git.problem == web.problem


def test_a_variable_that_is_not_set_is_the_problem_of_its_server(own_folder):  # noqa: F811
    git, web = servers(own_folder, GIT + WEB, {"WEB_TOKEN": "x"})

    assert "the environment has no variable GIT_TOKEN" == git.problem
    assert "" == web.problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mcp.git]\ncomand = ['x']", ":2: unknown key 'comand' in [mcp]; did you mean 'command'?"),
        ("[mcp.git]\ncommand = 'x'", ":2: mcp.git.command must be a list of texts, not 'x'"),
        ("[mcp.git]\nallow = ['x']", ":1: mcp.git needs a command or a url"),
        ("[mcp.git]\ncommand = ['x']\nurl = 'http://x'", "mcp.git has a command and a url"),
        ("[mcp.git]\nurl = 'x'", "mcp.git.url must begin with http:// or https://, not 'x'"),
        ("[mcp.'a__b']\ncommand = ['x']", "an MCP server has a name of at most 32 letters, digits, single - and _"),
        ("[mcp]\ncommand = ['x']", "mcp.command must be a table, [mcp.NAME], not ['x']"),
        ("mcp = 3", ":1: mcp must be tables, [mcp.NAME], not 3"),
        ("[mcp.git]\ncommand = ['x']\ncall_seconds = 0", "mcp.call_seconds must be above 0"),
        ("[mcp.git]\ncommand = ['x']\nenv = ['API_KEY=1']", "mcp.git.env: the value of API_KEY does not belong in a"),
        ("[mcp.w]\nurl = 'http://x'\nheaders = ['Authorization: Bearer 1']", "write 'Authorization: ${VARIABLE}'"),
        ("[mcp.w]\nurl = 'http://x'\nheaders = ['Authorization']", "'Authorization' is not 'NAME: VALUE'"),
    ],
)
def test_a_wrong_server_is_an_error_of_one_line_with_its_place(own_folder, text, said):  # noqa: F811
    path = write(own_folder, "wrong", text)

    with pytest.raises(ProfileError) as caught:
        profile_servers(load_profile("wrong").mcp, {})

    assert str(caught.value).startswith(f"{path.resolve()}:")
    assert said in str(caught.value)


def test_a_stronger_table_changes_keys_or_defines_the_server_anew(own_folder):  # noqa: F811
    write(own_folder, "base", GIT + WEB + "[mcp.off]\ncommand = ['x']\n")
    text = 'extends = "base"\n[mcp.git]\nallow = ["log"]\n[mcp.web]\nurl = "https://evil.example/mcp"\n'

    git, web = servers(own_folder, f"{text}[mcp.off]\nenabled = false\n", {"GIT_TOKEN": "t", "WEB_TOKEN": "t"})

    assert ("git-mcp", "--stdio") == git.command
    assert frozenset({"log"}) == git.allow
    assert "https://evil.example/mcp" == web.url
    assert () == web.headers  # those of the other address are not sent there


def test_a_server_can_be_turned_off_where_no_other_source_has_it(own_folder):  # noqa: F811
    assert () == servers(own_folder, "[mcp.git]\nenabled = false\n")


def test_the_question_about_a_project_names_what_would_run(tmp_path):
    (tmp_path / ".specchat.toml").write_text(GIT + WEB + "[mcp.other]\nallow = ['rm']\n")

    summary = summarize_project(find_project_file(tmp_path))

    assert "the MCP server git, which runs 'git-mcp --stdio' with env = " in summary
    assert "the MCP server web at https://a.b/mcp" in summary
    assert "the MCP server other with allow = ['rm']" in summary


def test_a_program_with_a_folder_is_relative_to_the_project_file(tmp_path):
    (tmp_path / ".specchat.toml").write_text("[mcp.a]\ncommand = ['tools/serve', 'x']\n[mcp.b]\ncommand = ['uvx']\n")

    tables = find_project_file(tmp_path).source().tables["mcp"]

    assert [str(tmp_path / "tools/serve"), "x"] == tables["a"]["command"]
    assert ["uvx"] == tables["b"]["command"]


def test_servers_are_not_sent_to_the_engine_process(tmp_path):
    (tmp_path / ".specchat.toml").write_text(GIT + "[limits]\nanswer = 5\n")
    layers = ProfileLayers("chat", read_profile_chain("chat"), (find_project_file(tmp_path).source(),))

    assert {"limits.answer": 5} == layers.settings().options
    assert ["git"] == [each.name for each in layers.resolve().value.mcp]


def test_config_show_prints_servers_as_they_are_written(own_folder, capsys):  # noqa: F811
    path = write(own_folder, "mine", GIT)

    show.main(["-P", str(path)], standalone_mode=False)
    assert '[mcp.git]\ncommand = ["git-mcp", "--stdio"]\n' in capsys.readouterr().out
    show.main(["-P", str(path), "--json", "--origin"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["origins"]["mcp.0"]["location"].endswith("mine.toml:1")
