"""A plugin for specchat: tools, prompts and texts of MCP servers. Each server starts with its first use.

servers.py           all servers of a front end, as its source of tools
command.py           `specchat mcp`; slash_command.py: `/mcp`
server_settings.py   how a server is reached; editor_servers.py: those that an editor passes on
connection.py        one server: it starts, answers within a time limit, and fails in one line
server_run.py        one run of it, on the thread of event_loop.py; stdio_transport.py, http_transport.py
checked_tools.py     lists of tools that the package takes
server_tools.py      what servers say, fit for models and terminals; so server_results.py, server_prompts.py,
                     server_progress.py and server_errors.py

Every process of specchat imports this file, so it only declares the extensions. The package `mcp`, which takes a
second to import, is imported when the first server starts.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_tool_sources() -> list[Extension]:
    return [Extension("mcp", "tools, prompts and texts of MCP servers", "specchat_mcp.servers:build")]


@hookimpl
def register_commands() -> list[Extension]:
    return [Extension("mcp", "List the MCP servers, or start one and list its tools.", "specchat_mcp.command:mcp")]


@hookimpl
def register_slash_commands() -> list[Extension]:
    text = "list the MCP servers and their tools, or start one and show what it offers"
    return [Extension("mcp", text, "specchat_mcp.slash_command:run", "[NAME|restart NAME]")]
