"""Downloads the files of a model into the hub's cache, with resume and hash check: for `models pull`, and to load it.

The cache is laid out as huggingface_hub does it, which is not asked for a file: it discards a partial one when the
process ends, compares sizes but no hashes, and waits without an end for headers that come byte by byte. The snapshot
folder appears only when all files are complete. Knows no terminal: the caller asks for consent and shows progress.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import WeakFileLock

from specchat.errors import ModelError
from specchat.hub.bounded_response import HTTPError, bounded_response
from specchat.hub.catalog import did_you_mean
from specchat.hub.disk_space import check_disk_space, disk_errors_as_model_errors
from specchat.hub.needed_files import digest_like
from specchat.hub.repo_files import HubFile, RepoListing, hub_errors_as_model_errors, list_repo_files
from specchat.hub.safetensors_headers import cached_model_folder
from specchat.paths import hub_id
from specchat.weights.gguf.gguf_preparation import Report, no_report

MAX_TRIES = 3  # in a row, without progress
PROGRESS_BYTES = 1024  # new ones, of a connection or of half a minute of one

OnProgress = Callable[[HubFile, int], None]  # a file, and how many of its bytes are downloaded


def fetch_from_hub(source: str, report: Report = no_report, *, is_draft: bool = False) -> Path:
    """The folder of a hub id with the files that loading reads: the newest ones; without a network, those of the cache.

    ModelError says what is wrong and what to do.
    """
    try:
        listing = list_repo_files(source, is_draft=is_draft)
    except ModelError as error:
        if not isinstance(error.__cause__, HTTPError | OfflineModeIsEnabled):
            raise
        if folder := cached_model_folder(source, is_draft=is_draft):
            return folder
        reason, hint = str(error).removeprefix(f"{source}: "), did_you_mean(source)
        missing = f"{source}: not on this machine, and {reason}, or give a folder"
        raise ModelError(f"{missing};{hint}" if hint else missing) from error
    check_hub_space([listing])
    return pull(listing, lambda file, count: report(f"downloading {file.name}", count, file.size_bytes))


def check_hub_space(listings: Sequence[RepoListing]) -> None:
    """ModelError when the disk has not enough space for the remaining bytes."""
    names = " and ".join(listing.source for listing in listings)
    needed = sum(listing.remaining_bytes() for listing in listings)
    check_disk_space(names, needed, listings[0].folder.parent, "HF_HOME")


def pull(listing: RepoListing, on_progress: OnProgress) -> Path:
    """Download the missing files and check their hashes; returns the folder to load from.

    ModelError when the connection, the disk or a hash fails. Downloaded bytes survive an interruption.
    """
    cache = listing.folder.parent
    disk_errors = disk_errors_as_model_errors(listing.source, cache, listing.remaining_bytes)
    with hub_errors_as_model_errors(listing.source), disk_errors:
        for file in listing.missing_files():
            _fetch(listing, file, on_progress)
        for file in listing.files:
            _put_into_snapshot(listing, file)
        main = listing.folder / "refs" / "main"
        main.parent.mkdir(parents=True, exist_ok=True)
        main.write_text(listing.commit)
    return listing.snapshot


def _put_into_snapshot(listing: RepoListing, file: HubFile) -> None:
    """Give a file its name: a link to its bytes, or a copy where the disk has no links."""
    blob, path = listing.blob_path(file), listing.snapshot / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # also where it is there
        if not path.exists():
            shutil.copyfile(blob, listing.partial_path(file)).replace(path)


def _fetch(listing: RepoListing, file: HubFile, on_progress: OnProgress) -> None:
    blob, partial = listing.blob_path(file), listing.partial_path(file)
    lock = listing.folder.parent / ".locks" / listing.folder.name / f"{file.digest}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():
            return  # another process downloaded it in the meantime
        url = hf_hub_url(hub_id(listing.source), file.name, revision=listing.commit, endpoint=constants.ENDPOINT)
        _download(file, url, partial, on_progress)
        if (actual := digest_like(file.digest, partial)) != file.digest:
            partial.unlink()
            raise ModelError(
                f"{listing.source}: {file.name} differs from the hub's listing (hash {actual[:12]}…, expected "
                f"{file.digest[:12]}…) and was deleted; run this again, and report it to the owner if it happens again"
            )
        partial.replace(blob)


def _download(file: HubFile, url: str, partial: Path, on_progress: OnProgress) -> None:
    """Download the rest of a file; reconnect after an error, at most MAX_TRIES times without progress."""
    partial.touch()
    tries, most = 0, partial.stat().st_size
    while (size := partial.stat().st_size) < file.size_bytes:
        try:
            for count in _append_stream(file, url, partial, size):
                on_progress(file, count)
                if count > file.size_bytes:
                    return  # the hash check will fail
        except HfHubHTTPError:
            raise
        except HTTPError:
            size = partial.stat().st_size
            tries, most = tries + 1 if size < most + PROGRESS_BYTES else 0, max(most, size)
            if tries == MAX_TRIES:
                raise
            time.sleep(min(tries, 1))
    on_progress(file, size)


def _append_stream(file: HubFile, url: str, partial: Path, start: int) -> Iterator[int]:
    """Append the bytes from `start` on to the file; yields its size after each piece."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    max_bytes = 2 * file.size_bytes + PROGRESS_BYTES  # one piece beyond its end, and the hash check fails
    with bounded_response(url, max_bytes, PROGRESS_BYTES, **headers) as response, partial.open("ab") as output:
        if start and response.status_code != 206:  # not "partial content": the server sends the whole file
            output.truncate(0)
            start = 0
        for piece in response.iter_raw():
            output.write(piece)
            start += len(piece)
            yield start
    if start < file.size_bytes:
        raise HTTPError("the file ended early")
