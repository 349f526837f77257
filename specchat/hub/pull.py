"""Downloads the files of a model into the hub's cache, with resume and hash check.

huggingface_hub lists the files and lays out the cache. It discards a partial file when the process ends, and over plain
HTTP it compares sizes but no hashes, so this module downloads the bytes. The snapshot folder appears only when all
files are complete. Knows no terminal: the caller asks for consent and shows progress.
"""

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
from specchat.weights.http_errors import HTTPError, hub_errors_as_model_errors

CHUNK_BYTES = 1 << 20
MAX_RETRIES = 5  # consecutive failures without a new byte
READ_TIMEOUT_SECONDS = 30.0

OnProgress = Callable[[HubFile, int], None]  # a file, and how many of its bytes are downloaded


def free_bytes(folder: Path) -> int:
    """The free space on the disk where this folder is or will be."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def check_disk_space(listings: Iterable[RepoListing]) -> None:
    """ModelError when the disk has not enough space for the remaining bytes."""
    repositories = list(listings)
    required, free = sum(listing.remaining_bytes() for listing in repositories), free_bytes(repositories[0].folder)
    if required > free:
        raise ModelError(
            f"{' and '.join(listing.source for listing in repositories)}: the download needs {format_bytes(required)}, "
            f"and {format_bytes(free)} are free at {repositories[0].folder.parent}; free some space, or set HF_HOME to "
            "a larger disk"
        )


def pull(listing: RepoListing, on_progress: OnProgress) -> Path:
    """Download the missing files and check their hashes; returns the folder to load from.

    ModelError when the connection, the disk or a hash fails. Downloaded bytes survive an interruption.
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
    """Format bytes in decimal units: 16.4 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _fetch(listing: RepoListing, file: HubFile, on_progress: OnProgress) -> None:
    blob, partial = listing.blob_path(file), listing.partial_path(file)
    lock = listing.folder.parent / ".locks" / listing.folder.name / f"{file.digest}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():
            return  # another process downloaded it in the meantime
        url = hf_hub_url(listing.source, file.name, revision=listing.commit, endpoint=constants.ENDPOINT)
        _download(file, url, partial, on_progress)
        if (actual := file.digest_of(partial)) != file.digest:
            partial.unlink()
            raise ModelError(
                f"{listing.source}: {file.name} differs from the hub's listing (hash {actual[:12]}…, expected "
                f"{file.digest[:12]}…) and was deleted; run this again, and report it to the owner if it happens again"
            )
        partial.replace(blob)


def _download(file: HubFile, url: str, partial: Path, on_progress: OnProgress) -> None:
    """Download the rest of a file; reconnect after an error, at most MAX_RETRIES times without progress."""
    partial.touch()
    retries = 0
    while (size := partial.stat().st_size) < file.size_bytes:
        try:
            for count in _append_stream(url, partial, size):
                on_progress(file, count)
                if count > file.size_bytes:
                    return  # the hash check will fail
        except HfHubHTTPError:
            raise
        except HTTPError:
            retries = retries + 1 if partial.stat().st_size == size else 0
            if retries == MAX_RETRIES:
                raise
            time.sleep(min(retries, 1))
    on_progress(file, size)


def _append_stream(url: str, partial: Path, start: int) -> Iterator[int]:
    """Append the bytes from `start` on to the file; yields its size after each chunk."""
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with (
        get_session().stream("GET", url, headers=headers, timeout=READ_TIMEOUT_SECONDS) as response,
        partial.open("ab") as output,
    ):
        hf_raise_for_status(response)
        if start and response.status_code != 206:  # not "partial content": the server sends the whole file
            output.truncate(0)
            start = 0
        for chunk in response.iter_raw(CHUNK_BYTES):
            output.write(chunk)
            start += len(chunk)
            yield start


@contextmanager
def _disk_errors_as_model_errors(listing: RepoListing) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # not from the disk: errors of the hub are OSErrors, too
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"the disk at {listing.folder.parent} is full; free {format_bytes(listing.remaining_bytes())}"
            raise ModelError(f"{listing.source}: {message} and run this again: the download resumes") from error
        raise ModelError(f"{listing.source}: cannot be stored in {listing.folder.parent}: {error}") from error
