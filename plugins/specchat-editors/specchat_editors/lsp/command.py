"""`specchat lsp`: editors that speak the Language Server Protocol.

An editor starts this. Only the protocol goes to stdout, and nothing goes to stderr once it has started, because editors
show stderr to their users as errors.
"""

import sys
from collections.abc import Coroutine
from typing import Any

import click

from specchat.cli.options import read_layers
from specchat.errors import UsageError
from specchat_editors.stdio import StdioDescriptors, run_stdio_server

EDITOR_SETTINGS_EXAMPLE = 'in Helix: [language-server.specchat] command = "specchat", args = ["lsp"]'


@click.command()
@click.option("--stdio", is_flag=True, help="The default; some editors pass it.")
def lsp(stdio: bool) -> int:  # noqa: ARG001 (stdio is the only transport)
    """Complete and edit in an editor, over standard input and output (Language Server Protocol).

    Editors start this; docs/editors-lsp.md has the settings for several.
    """
    if sys.stdin.isatty():
        raise UsageError(f"an editor starts this command; {EDITOR_SETTINGS_EXAMPLE}")
    run_stdio_server("lsp", _make_server)


def _make_server(descriptors: StdioDescriptors) -> Coroutine[Any, Any, int]:
    from specchat_editors.lsp.process_lsp import serve_lsp

    return serve_lsp(descriptors, lambda profile: read_layers(profile).settings())
