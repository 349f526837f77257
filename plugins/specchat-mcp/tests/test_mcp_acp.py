"""The servers that an editor passes on, as the protocol's own values."""

import pytest
from acp.schema import (
    AcpMcpServer,
    EnvVariable,
    HttpHeader,
    HttpMcpServer,
    McpServerStdio,
    SseMcpServer,
)
from started_servers import details

from specchat.errors import SpecchatError
from specchat_mcp.editor_servers import servers_from_acp
from specchat_mcp.servers import McpServers


def test_a_program_starts_in_the_folder_of_the_session_with_the_variables_of_the_editor():
    server = McpServerStdio(name="git", command="/bin/git-mcp", args=["-v"], env=[EnvVariable(name="A", value="${B}")])

    [settings] = servers_from_acp([server], "/project")

    assert ("git", ("/bin/git-mcp", "-v"), "/project") == (settings.name, settings.command, settings.folder)
    assert (("A", "${B}"),) == settings.env  # a value, and no name of a variable here


def test_a_server_at_a_url_gets_the_headers_of_the_editor_and_shows_no_value():
    headers = [HttpHeader(name="Authorization", value="Bearer x1")]

    [settings] = servers_from_acp([HttpMcpServer(name="web", url="https://a.b/mcp", headers=headers, type="http")], "/")

    assert (("Authorization", "Bearer x1"),) == settings.headers
    assert "https://a.b/mcp" == settings.url
    assert "x1" not in repr(settings)


@pytest.mark.parametrize(
    "server",
    [
        SseMcpServer(name="old", url="https://a.b/sse", headers=[], type="sse"),
        AcpMcpServer(name="old", server_id="1", type="acp"),
    ],
)
def test_another_transport_is_refused_in_one_line(server):
    with pytest.raises(SpecchatError, match=r"MCP server old: the editor reaches it by (sse|acp);"):
        details(McpServers(servers_from_acp([server], "/")), "old")


def test_names_become_ours_and_stay_different():
    names = ["My Server!", "my server", "My-Server", "", "x" * 90, "x" * 91]
    servers = [McpServerStdio(name=name, command="c", args=[], env=[]) for name in names]

    found = [each.name for each in servers_from_acp(servers, "/", taken_names=("git",))]

    assert ["My_Server", "my_server", "My_Server_2", "server", "x" * 29, f"{'x' * 29}_2"] == found
