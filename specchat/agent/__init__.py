"""Tools that the model calls while it answers, with the consent of the user. Front ends import it; no torch, no screen.

    agent_tool.py   the interface of a tool: what it does, its effect, its outcome

Further tools (of MCP servers, of an editor) are further `AgentTool`s in the list that a front end passes on.
"""
