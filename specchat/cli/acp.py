"""`specchat acp`: editors that speak the Agent Client Protocol.

Started by an editor and not by a person. Nothing but the protocol goes to stdout, and nothing at all to stderr once it
has begun, because editors show that to their users as errors.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click

from specchat.cli.options import profile_options, read_profile_layers
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import SessionRequest
from specchat.host.stdio_descriptors import StdioDescriptors, redirect_stdio, restore_stderr

EDITOR_SETTINGS_EXAMPLE = (
    'in Zed: "agent_servers": {"specchat": {"type": "custom", "command": "specchat", "args": ["acp"]}}'
)


@click.command()
@click.option("--log-stderr", "keeps_stderr", is_flag=True, help="Write the log to stderr.")
@profile_options
def acp(keeps_stderr: bool, **options: Any) -> int:
    """Serve an editor over standard input and output (Agent Client Protocol).

    An editor starts this itself; docs/editors.md has the settings for several. Needs the extra `editors`.
    """
    if find_spec("acp") is None:
        raise UsageError("editors need the package agent-client-protocol; pip install 'specchat[editors]'")
    if sys.stdin.isatty():
        raise UsageError(f"this is started by an editor, not by hand; {EDITOR_SETTINGS_EXAMPLE}")
    taken = redirect_stdio("acp", keeps_stderr=keeps_stderr)
    try:
        read_profile_layers(options).resolve()
    except SpecchatError:
        restore_stderr(taken)
        raise
    _serve(taken, options)


def _session_request(options: dict[str, Any], folder: Path) -> SessionRequest:
    """A new conversation in a folder; its project has a say, where somebody trusts it."""
    return SessionRequest(profile=options["profile"], overrides=read_profile_layers(options, folder).overrides())


def _serve(descriptors: StdioDescriptors, options: dict[str, Any]) -> NoReturn:
    gc.disable()  # the SDK makes a hundred thousand objects for good; collecting takes as long again
    from specchat.editors.acp.process_acp import serve_acp

    gc.freeze()
    gc.enable()
    code = asyncio.run(
        serve_acp(descriptors.stdin, descriptors.stdout, partial(_session_request, options), handles_signals=True)
    )
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a model must not keep the process
