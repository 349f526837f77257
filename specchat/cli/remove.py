"""`specchat models remove`: deletes a model, or what was made from a GGUF file, after showing what that frees."""

from __future__ import annotations

import click

from specchat.cli.completion import complete_models
from specchat.cli.notes import confirm, print_note
from specchat.cli.starter_offer import remember_no
from specchat.errors import ModelError
from specchat.profile.keys import STARTER


@click.command()
@click.argument("source", metavar="ID", shell_complete=complete_models)
@click.option("-y", "--yes", "skips_confirmation", is_flag=True, help="Do not ask.")
def remove(source: str, *, skips_confirmation: bool) -> None:
    """Delete a model from the hub cache, or `starter`; other folders are never touched.

    ID is a hub id like org/name. Partial downloads are deleted, too. For a GGUF file, what was made from it is
    deleted, and the file stays.
    """
    from specchat.hub.disk_space import format_bytes
    from specchat.hub.remove import plan_removal

    removal = plan_removal(source)
    print_note(f"{source}: {format_bytes(removal.freed_bytes)} in {removal.folder}")
    if not skips_confirmation:
        confirm("Remove?", "a removal", "nothing was removed")
    removal.run()
    if removal.folder.exists():
        raise ModelError(f"{source}: some files could not be deleted; see {removal.folder}")
    if source == STARTER:
        remember_no()
    print_note(f"removed; {format_bytes(removal.freed_bytes)} are free again")
