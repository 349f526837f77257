"""`specchat mcp`: the MCP servers of the settings; with a name, whether that server works and what it offers."""

from __future__ import annotations

import threading
from typing import Any

import click

from specchat.app.tool_sources import SourceRequest
from specchat.cli.options import profile_options, read_profile_layers


@click.command()
@click.argument("name", required=False)
@profile_options
def mcp(name: str | None, **options: Any) -> None:
    """List the MCP servers of the profile, config.toml and the project file; start the server NAME and list its tools.

    `[mcp.NAME]` in one of these files adds a server. Without a NAME nothing is started.
    """
    from specchat_mcp.servers import build

    servers = build(SourceRequest(read_profile_layers(options).resolve().value))
    try:
        click.echo(servers.details(name, threading.Event()) if name else servers.overview())
    finally:
        servers.close()
