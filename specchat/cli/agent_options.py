"""The options of commands that let the model use tools in this folder, and the agent that answers with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from specchat.app.agent.project_agent import AgentUI, ProjectAgent
from specchat.app.chat_state import ChatState
from specchat.app.mcp.mcp_servers import front_end_servers
from specchat.cli.options import CommandFunction
from specchat.host.client import Conversation
from specchat.profile import AGENT_ON, AGENT_PLAN
from specchat.repl.terminal_agent import terminal_agent


def agent_options(command: CommandFunction) -> CommandFunction:
    agent = click.option("--agent", "is_agent", is_flag=True, help="Let the model use tools here (docs/agents.md).")
    plan = click.option("--plan", "is_plan", is_flag=True, help="The same, and the tools only read.")
    allow = click.option(
        "--allow", multiple=True, metavar="TOOL[:PATTERN]",
        help="Let this tool act without a question; may be given again.",
    )  # fmt: skip
    return agent(plan(allow(command)))


def take_agent_mode(options: dict[str, Any]) -> tuple[str, Sequence[str]]:
    """The mode, "" for that of the profile, and the rules; removes the `agent_options` from the options."""
    is_agent, is_plan, allow = options.pop("is_agent"), options.pop("is_plan"), options.pop("allow")
    return AGENT_PLAN if is_plan else AGENT_ON if is_agent else "", allow


def command_agent(
    conversation: Conversation, mode: str, allow: Sequence[str], *, reads_stdin: bool = False
) -> ProjectAgent:
    """What answers in a command. It asks the user at a terminal only, and not where stdin has other questions."""
    chat = ChatState(conversation, servers=front_end_servers(), has_commands=False)
    agent = terminal_agent(chat, allow, mode)
    return replace(agent, ui=AgentUI()) if reads_stdin else agent
