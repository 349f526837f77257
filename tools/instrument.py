"""Runs an instrument with the options of `specchat`: an error is one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from specchat.errors import SpecchatError


def run_instrument(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """The exit code; `arguments` are those of the process by default."""
    try:
        code = command.main(arguments, prog_name=f"python -m tools.{command.name}", standalone_mode=False)
    except SpecchatError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    return code if isinstance(code, int) else 0
