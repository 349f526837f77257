"""`specchat acp`: editors that speak the Agent Client Protocol.

An editor starts this. Only the protocol goes to stdout, and nothing goes to stderr once it has started, because editors
show stderr to their users as errors.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import profile_options, read_profile_layers
from specchat.errors import UsageError
from specchat.host.client import SessionRequest
from specchat.profile.keys import Profile
from specchat_editors.stdio import StdioDescriptors, run_stdio_server

EDITOR_SETTINGS_EXAMPLE = (
    'in Zed: "agent_servers": {"specchat": {"type": "custom", "command": "specchat", "args": ["acp"]}}'
)


@click.command()
@click.option("--log-stderr", "keeps_stderr", is_flag=True, help="Write the log to stderr.")
@profile_options
def acp(keeps_stderr: bool, **options: Any) -> int:
    """Serve an editor over standard input and output (Agent Client Protocol).

    Editors start this; docs/editors.md has the settings for several.
    """
    if sys.stdin.isatty():
        raise UsageError(f"an editor starts this command; {EDITOR_SETTINGS_EXAMPLE}")

    def make_server(descriptors: StdioDescriptors) -> Coroutine[Any, Any, int]:
        read_profile_layers(options).resolve()  # a mistake in the profile ends the command before it starts
        from specchat_editors.acp.agent import serve_acp

        make_request = partial(_session_request, options)
        profile_of = partial(_profile, options)
        return serve_acp(descriptors.stdin, descriptors.stdout, make_request, profile_of, handles_signals=True)

    run_stdio_server("acp", make_server, keeps_stderr=keeps_stderr)


def _session_request(options: dict[str, Any], folder: Path) -> SessionRequest:
    """The request for a new conversation in a folder; its project file counts where it is trusted."""
    return SessionRequest(settings=read_profile_layers(options, folder).settings())


def _profile(options: dict[str, Any], folder: Path) -> Profile:
    """The profile with the project file of this folder where it is trusted, for the sources of tools of a session."""
    return read_profile_layers(options, folder).resolve().value
