"""Files of a model come from the hub into its cache: gone on with where they stopped, and checked.

The hub's own library says what there is and lays out the cache. It throws half a file away when a process ends, and
over plain HTTP it compares sizes but no hashes, so the bytes are fetched here. A snapshot appears only when all of it
is there: what loads models never meets half of one. Knows no terminal: whoever calls asks the person and draws the bar.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import constants, get_session, hf_hub_download, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import WeakFileLock, build_hf_headers, hf_raise_for_status

from specchat.errors import ModelError
from specchat.hub.repo_files import HubFile, RepoListing
from specchat.models.http_errors import HTTPError, hub_errors_as_model_errors

CHUNK_BYTES = 1 << 20
MAX_RETRIES = 5  # so often in a row the connection may break without a single new byte
READ_TIMEOUT_SECONDS = 30.0  # a server that says nothing for so long is gone

OnProgress = Callable[[HubFile, int], None]  # a file, and how many bytes of it are here


def free_bytes(folder: Path) -> int:
    """Room on the disk where this folder is or will be."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def check_disk_space(listings: Iterable[RepoListing]) -> None:
    """ModelError when the disk cannot take what is still to come."""
    chosen = list(listings)
    wanted, free = sum(listing.remaining_bytes() for listing in chosen), free_bytes(chosen[0].folder)
    if wanted > free:
        raise ModelError(
            f"{' and '.join(listing.source for listing in chosen)}: {format_bytes(wanted)} are to come and "
            f"{format_bytes(free)} are free at {chosen[0].folder.parent}; make room, or set HF_HOME to a larger disk"
        )


def pull(listing: RepoListing, on_progress: OnProgress) -> Path:
    """Fetch what is missing, check it, and lay it out; the folder to load from.

    ModelError when the connection, the disk or a hash fails. Interrupted at any point, the bytes that came are kept.
    """
    with hub_errors_as_model_errors(listing.source), _disk_errors_as_model_errors(listing):
        for file in listing.missing_files():
            _fetch(listing, file, on_progress)
        for file in listing.files:
            hf_hub_download(listing.source, file.name, revision=listing.commit, endpoint=constants.ENDPOINT)
        main = listing.folder / "refs" / "main"
        main.parent.mkdir(parents=True, exist_ok=True)
        main.write_text(listing.commit)
    return listing.snapshot


def format_bytes(size: int) -> str:
    """Bytes as people say them: 16.4 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _fetch(listing: RepoListing, file: HubFile, on_progress: OnProgress) -> None:
    """One file, whole and right, as a blob of the cache."""
    blob, partial = listing.blob_path(file), listing.partial_path(file)
    lock = listing.folder.parent / ".locks" / listing.folder.name / f"{file.digest}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():
            return  # somebody else fetched it while we waited
        url = hf_hub_url(listing.source, file.name, revision=listing.commit, endpoint=constants.ENDPOINT)
        _download(file, url, partial, on_progress)
        if (found := file.digest_of(partial)) != file.digest:
            partial.unlink()
            raise ModelError(
                f"{listing.source}: {file.name} is not what the hub lists (hash {found[:12]}… for {file.digest[:12]}…) "
                "and was thrown away; run this again, and tell its owner if it stays so"
            )
        partial.replace(blob)


def _download(file: HubFile, url: str, partial: Path, on_progress: OnProgress) -> None:
    """Go on until all of it is here; a connection that breaks is made anew, unless it brings nothing."""
    partial.touch()
    tries = 0
    while (here := partial.stat().st_size) < file.size_bytes:
        try:
            for count in _append_stream(url, partial, here):
                on_progress(file, count)
                if count > file.size_bytes:
                    return  # the hash will not be right either
        except HfHubHTTPError:
            raise
        except HTTPError:
            tries = tries + 1 if partial.stat().st_size == here else 0
            if tries == MAX_RETRIES:
                raise
            time.sleep(min(tries, 1))
    on_progress(file, here)


def _append_stream(url: str, partial: Path, start: int) -> Iterator[int]:
    """Append what the server sends from this byte on; yields how much is there."""
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with (
        get_session().stream("GET", url, headers=headers, timeout=READ_TIMEOUT_SECONDS) as response,
        partial.open("ab") as growing,
    ):
        hf_raise_for_status(response)
        if start and response.status_code != 206:  # not "partial content": it begins at the beginning
            growing.truncate(0)
            start = 0
        for chunk in response.iter_raw(CHUNK_BYTES):
            growing.write(chunk)
            start += len(chunk)
            yield start


@contextmanager
def _disk_errors_as_model_errors(listing: RepoListing) -> Generator[None]:
    """What the disk refuses, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # not of the disk: the hub's own errors are such, too
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            left = format_bytes(listing.remaining_bytes())
            message = f"no room left at {listing.folder.parent}; make room for {left} and run this again: it goes on"
            raise ModelError(f"{listing.source}: {message} with what came") from error
        raise ModelError(f"{listing.source}: cannot be kept in {listing.folder.parent}: {error}") from error
