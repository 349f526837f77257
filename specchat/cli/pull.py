"""`specchat models pull`: a model comes from the hub, after its size, its licence and the room for it were seen."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from specchat.errors import ModelError, NotTakenError, UsageError

if TYPE_CHECKING:
    from specchat.hub.pull import Hear
    from specchat.hub.repo_files import HubFile, Listing


@click.command()
@click.argument("source", metavar="ID")
@click.option("--draft", metavar="ID", help="A draft model or head that comes with it.")
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Do not ask.")
@click.option("--offline", "is_offline", is_flag=True, help="Ask nobody; only say whether it is here.")
def pull(source: str, draft: str | None, *, is_agreed: bool, is_offline: bool) -> None:
    """Download a model from the hub, or go on with half of one; prints its folder.

    ID is a hub id like org/name. HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE are honoured.
    """
    sources = {source: False} | ({draft: True} if draft else {})  # and whether it is a draft
    from huggingface_hub import constants

    if is_offline or constants.is_offline_mode():
        _say_what_is_here(sources)
        return
    from specchat.hub.pull import check_room
    from specchat.hub.repo_files import list_files

    _tell(f"asking {constants.ENDPOINT} about {' and '.join(sources)}")
    listings = [list_files(each, is_draft=is_draft) for each, is_draft in sources.items()]
    for listing in listings:
        _describe(listing)
    check_room(listings)
    if any(listing.missing() for listing in listings) and not is_agreed:
        _ask()
    for listing in listings:
        print(_fetched(listing))


def _describe(listing: Listing) -> None:
    from specchat.hub.pull import free_bytes, in_words

    missing, come = listing.missing(), listing.bytes_to_come()
    _tell(f"{listing.source}: {in_words(listing.size)} in {len(listing.files)} files, licence {listing.licence}")
    if not missing:
        _tell(f"  all of it is here: {listing.snapshot}")
        return
    if come < listing.size:
        _tell(f"  {in_words(listing.size - come)} of it are here, {in_words(come)} are to come")
    for file in missing:
        if here := listing.bytes_here(file):
            _tell(f"  goes on with {file.name} at {in_words(here)} of {in_words(file.size)}")
    _tell(f"  into {listing.folder}, where {in_words(free_bytes(listing.folder))} are free")


def _ask() -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nobody is here to agree to this download; --yes agrees")
    if not click.confirm("Download?", err=True):
        raise NotTakenError("nothing was downloaded")


def _fetched(listing: Listing) -> str:
    """The folder of the model, once all of it is there."""
    from specchat.hub.pull import pull as fetch

    try:
        with _bar(listing) as hear:
            return str(fetch(listing, hear))
    except KeyboardInterrupt:
        _tell(f"{listing.source}: what came is kept; the same command goes on from there")
        raise


@contextmanager
def _bar(listing: Listing) -> Generator[Hear]:
    """Shows how far it is, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    here = {file.name: listing.bytes_here(file) for file in listing.missing()}
    before = listing.size - listing.bytes_to_come() - sum(here.values())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    is_hidden = not sys.stderr.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=is_hidden) as progress:
        bar = progress.add_task(listing.source, total=listing.size, completed=before + sum(here.values()))

        def hear(file: HubFile, count: int) -> None:
            here[file.name] = count
            progress.update(bar, completed=before + sum(here.values()), description=file.name)

        yield hear


def _say_what_is_here(sources: Mapping[str, bool]) -> None:
    from huggingface_hub.errors import HFValidationError

    from specchat.models.fetch import in_cache

    for source, is_draft in sources.items():
        try:
            folder = in_cache(source, is_draft=is_draft)
        except HFValidationError as error:
            raise ModelError(f"{source}: no hub id like org/name") from error
        if folder is None:
            raise ModelError(f"{source}: not on this machine, and --offline or HF_HUB_OFFLINE asks nobody for it")
        print(folder)


def _tell(line: str) -> None:
    click.echo(line, err=True)
