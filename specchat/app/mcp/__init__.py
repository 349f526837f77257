"""MCP: tools, prompts and resources of servers that the user named. The SDK is imported when the first server starts.

mcp_servers.py       the servers of a front end: tools, prompts, resources, states; /mcp and /mcp:SERVER:PROMPT
mcp_settings.py      how a server is reached; mcp_acp.py: those that an editor passes on
mcp_connection.py    one server, which starts with its first use
mcp_run.py           one run of it, on the thread of mcp_event_loop.py; mcp_stdio.py, mcp_http.py: the transports
mcp_tools.py         what servers say, fit for models and terminals; so mcp_results.py, mcp_prompts.py, mcp_errors.py
"""
