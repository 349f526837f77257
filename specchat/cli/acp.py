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

from specchat.cli.options import choice, profile_options
from specchat.errors import SpecchatError, UsageError
from specchat.host.client import Wish
from specchat.host.descriptors import Descriptors, say_on_stderr, take_descriptors

SETTINGS = 'in Zed: "agent_servers": {"specchat": {"type": "custom", "command": "specchat", "args": ["acp"]}}'


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
        raise UsageError(f"this is started by an editor, not by hand; {SETTINGS}")
    taken = take_descriptors("acp", keeps_stderr=keeps_stderr)
    try:
        choice(options).settled()
    except SpecchatError:
        say_on_stderr(taken)
        raise
    _serve(taken, options)


def _wish(options: dict[str, Any], folder: Path) -> Wish:
    """A new conversation in a folder; its project has a say, where somebody trusts it."""
    return Wish(profile=options["profile"], overrides=choice(options, folder).overrides())


def _serve(taken: Descriptors, options: dict[str, Any]) -> NoReturn:
    gc.disable()  # the SDK makes a hundred thousand objects for good; collecting takes as long again
    from specchat.editors.acp.process_acp import serve

    gc.freeze()
    gc.enable()
    code = asyncio.run(serve(taken.incoming, taken.outgoing, partial(_wish, options), hears_signals=True))
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a model must not keep the process
