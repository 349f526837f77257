"""`specchat models remove`: a model leaves the hub's cache, after what that frees was seen."""

from __future__ import annotations

import sys

import click

from specchat.errors import DeclinedError, ModelError, UsageError


@click.command()
@click.argument("source", metavar="ID")
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
def remove(source: str, *, is_agreed: bool) -> None:
    """Delete a model from the hub's cache; folders of your own are never touched.

    ID is a hub id like org/name. What was downloaded in part goes too.
    """
    from specchat.hub.pull import format_bytes
    from specchat.hub.remove import plan_removal

    chosen = plan_removal(source)
    click.echo(f"{source}: {format_bytes(chosen.freed_bytes)} in {chosen.folder}", err=True)
    if not is_agreed:
        _confirm()
    chosen.run()
    if chosen.folder.exists():
        raise ModelError(f"{source}: some of it could not be deleted; look into {chosen.folder}")
    click.echo(f"removed; {format_bytes(chosen.freed_bytes)} are free again", err=True)


def _confirm() -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nobody is here to agree to this; --yes agrees")
    if not click.confirm("Remove?", err=True):
        raise DeclinedError("nothing was removed")
