"""`python -m tests.clients.run [--packages FOLDER] [NAME...]`: run all installed clients and print a page.

Clients of `specchat acp`, `specchat lsp` and `specchat serve` need the plugins specchat-editors and specchat-serve,
installed. Missing clients are reported as not run. The exit code is 1 when an installed one fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.plugins.discovery import find_extensions
from specchat.plugins.own_plugins import OWN_PLUGINS
from tests.clients import agents, coding_agents, filters, http_sdks, servers, vscode
from tests.clients.chosen_names import add_names
from tests.clients.world import NotAvailable, Step, World, new_world

Client = Callable[[World], Iterator[Step]]
ACP, LSP, FILTER, HTTP = "`specchat acp`", "`specchat lsp`", "`specchat edit -`", "`specchat serve`"
CLIENTS: Mapping[str, tuple[str, Client]] = {
    "acpx": (ACP, agents.acpx),
    "CodeCompanion": (ACP, agents.code_companion),
    "acp.el": (ACP, agents.acp_el),
    "agent-shell": (ACP, agents.agent_shell),
    "Toad": (ACP, agents.toad),
    "Zed": (ACP, agents.zed),
    "JetBrains": (ACP, agents.jetbrains),
    "Neovim": (LSP, servers.neovim),
    "eglot": (LSP, servers.eglot),
    "Helix": (LSP, servers.helix),
    "VS Code": ("`specchat edit -`, `specchat lsp`", vscode.vs_code),
    "Vim, as a filter": (FILTER, filters.vim),
    "Neovim, as a filter": (FILTER, filters.neovim),
    "Helix, as a filter": (FILTER, filters.helix),
    "Kakoune, as a filter": (FILTER, filters.kakoune),
    "Emacs, as a filter": (FILTER, filters.emacs),
    "openai": (HTTP, http_sdks.openai),
    "anthropic": (HTTP, http_sdks.anthropic),
    "ollama": (HTTP, http_sdks.ollama),
    "llm": (HTTP, http_sdks.llm),
    "opencode": (HTTP, coding_agents.opencode),
    "Qwen Code": (HTTP, coding_agents.qwen_code),
    "Codex": (HTTP, coding_agents.codex),
    "Claude Code": (HTTP, coding_agents.claude_code),
    "openai-agents": (HTTP, coding_agents.openai_agents),
}
INTRODUCTION = """# Third-party clients

Output of `python -m tests.clients.run` on {date}, with the plugins
[specchat-editors](../plugins/specchat-editors/README.md) and
[specchat-serve](../plugins/specchat-serve/README.md): third-party clients with the settings from
[editors.md](editors.md), [editors-lsp.md](editors-lsp.md) and [plugins/](../plugins/README.md), against the embedded
model on a CPU. The script searches clients on the `PATH`, and packages of Neovim and Emacs in the folder
`--packages`, one repository each, and SDKs in its virtual environment `sdks`; missing ones are not run. The calls of
tools are those of a scripted model with fixed answers; the clients run them. The official TypeScript SDK, a raw LSP
client, a pipe and Vim with its plugin are tested by the test suite (`pytest -m full`).
"""


@dataclass(frozen=True)
class Told:
    """A section of the page, and whether its client passed."""

    text: str
    is_well: bool = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path("clients"), help="sources of packages for editors")
    add_names(parser, list(CLIENTS))
    given = parser.parse_args(arguments)
    print(INTRODUCTION.format(date=time.strftime("%Y-%m-%d")))
    is_well = True
    with new_world(given.packages.absolute()) as world:
        for name in given.names:
            told = tell(name, world)
            is_well &= told.is_well
            print(told.text, flush=True)
    return 0 if is_well else 1


def tell(name: str, world: World) -> Told:
    """Run one client."""
    program, client = CLIENTS[name]
    lines, is_well = list[str](), True
    try:
        check_installed(program)
        for step in client(world):
            lines.append(f"| {_cell(step.done)} | {_cell(step.seen)} |")  # also those before one that fails
            is_well &= step.is_well
    except NotAvailable as missing:
        lines.append(f"| not run | {_cell(str(missing))} |")
    except (AssertionError, LookupError, subprocess.TimeoutExpired) as fault:
        lines.append(f"| **failed** | {_cell(str(fault))} |")
        is_well = False
    table = "\n".join(["| step | result |", "|---|---|", *lines])
    return Told(f"## {name}\n\n{program}\n\n{table}\n", is_well)


def check_installed(program: str) -> None:
    """NotAvailable where a command of these is one of a plugin that is not installed."""
    for command in re.findall(r"`specchat (\w+)", program):
        if command in OWN_PLUGINS and command not in find_extensions("commands"):
            raise NotAvailable(f"the plugin specchat-{OWN_PLUGINS[command]} is not installed")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
