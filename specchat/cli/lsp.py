"""`specchat lsp`: editors that speak the Language Server Protocol.

Started by an editor and not by a person. Nothing but the protocol goes to stdout, and nothing at all to stderr once it
has begun, because editors show that to their users as errors.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from importlib.util import find_spec

import click

from specchat.errors import UsageError
from specchat.host.stdio_descriptors import StdioDescriptors, redirect_stdio

EDITOR_SETTINGS_EXAMPLE = 'in Helix: [language-server.specchat] command = "specchat", args = ["lsp"]'


@click.command()
@click.option("--stdio", is_flag=True, help="As ever; some editors insist on saying so.")
def lsp(stdio: bool) -> int:  # noqa: ARG001 (there is no other way)
    """Complete and edit in an editor, over standard input and output (Language Server Protocol).

    An editor starts this itself; docs/editors-lsp.md has the settings for several. Needs the extra `editors`.
    """
    if find_spec("pygls") is None:
        raise UsageError("a language server needs the package pygls; pip install 'specchat[editors]'")
    if sys.stdin.isatty():
        raise UsageError(f"this is started by an editor, not by hand; {EDITOR_SETTINGS_EXAMPLE}")
    taken = redirect_stdio("lsp")
    try:
        code = _serve(taken)
    except BaseException:
        os.dup2(taken.stderr, 2)  # for the one line of who gives up before it began
        raise
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a model must not keep the process


def _serve(descriptors: StdioDescriptors) -> int:
    gc.disable()  # the types of the protocol are made for good
    from specchat.editors.lsp.process_lsp import serve_lsp

    gc.freeze()
    gc.enable()
    return asyncio.run(serve_lsp(descriptors))
