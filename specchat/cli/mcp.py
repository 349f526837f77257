"""`specchat mcp`: the MCP servers of the settings; with a name, whether that server works and what it offers."""

from __future__ import annotations

import os
from typing import Any

import click

from specchat.cli.options import profile_options, read_profile_layers


@click.command()
@click.argument("name", required=False)
@profile_options
def mcp(name: str | None, **options: Any) -> None:
    """List the MCP servers of the profile, config.toml and the project file; start the server NAME and list its tools.

    `[mcp.NAME]` in one of these files adds a server. Without a NAME nothing is started.
    """
    from specchat.app.mcp.mcp_servers import McpServers
    from specchat.app.mcp.mcp_settings import profile_servers

    tables = read_profile_layers(options).resolve().value.mcp_servers
    servers = McpServers(profile_servers(tables, os.environ))
    try:
        click.echo(servers.details(name) if name else servers.overview())
    finally:
        servers.close()
