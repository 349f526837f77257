"""Lists the needed files of a model on the hub, with sizes, hashes, the licence, and their paths in the cache.

Sends one request to the hub and downloads nothing. Names and hashes from the hub are checked before they become a path
or terminal output. Errors of the hub and of the network become one line that says what to do.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from huggingface_hub.utils import validate_repo_id

from specchat.errors import ModelError, first_line
from specchat.hub.bounded_response import HTTPError, bounded_response
from specchat.hub.needed_files import is_digest, needed_files
from specchat.paths import hub_id, hub_repo_folder

PROBE_SECONDS = 5.0
MAX_LISTING_BYTES = 16 * 2**20  # it comes within one window
STATUS_MESSAGES = {
    401: "the hub rejects the token (401): run 'hf auth login' again, or correct HF_TOKEN",
    403: "access denied (403): the token needs read permission",
    404: "the hub has no such model or file (404): check the name",
}


@dataclass(frozen=True)
class HubFile:
    """A file in the hub's listing. Its digest is the name of its blob: sha256 for large files, else git's sha1."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True)
class RepoListing:
    source: str
    commit: str
    licence: str
    folder: Path
    files: tuple[HubFile, ...]

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.commit

    @property
    def pinning(self) -> str:
        """What is known of the content before the download, for the user."""
        return f"commit {self.commit[:12]}, the newest: not pinned by specchat, checked against the hub's own hashes"

    def missing_files(self) -> list[HubFile]:
        return [
            file
            for file in self.files
            if not self.blob_path(file).exists() and not (self.snapshot / file.name).exists()
        ]

    def blob_path(self, file: HubFile) -> Path:
        return self.folder / "blobs" / file.digest

    def partial_path(self, file: HubFile) -> Path:
        return self.folder / "blobs" / f"{file.digest}.incomplete"

    def downloaded_bytes(self, file: HubFile) -> int:
        partial = self.partial_path(file)
        return min(partial.stat().st_size, file.size_bytes) if partial.exists() else 0

    def remaining_bytes(self) -> int:
        return sum(file.size_bytes - self.downloaded_bytes(file) for file in self.missing_files())


def list_repo_files(source: str, *, is_draft: bool = False) -> RepoListing:
    """List the files of a model or head that loading reads. ModelError when the hub has none."""
    with hub_errors_as_model_errors(source):
        validate_repo_id(hub_id(source))
        url = f"{constants.ENDPOINT}/api/models/{hub_id(source)}?blobs=true"
        with bounded_response(url, MAX_LISTING_BYTES, MAX_LISTING_BYTES) as response:
            info = ModelInfo(**json.loads(response.read()))
        siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
        names = needed_files(source, list(siblings), is_draft=is_draft)
        files = tuple(hub_file(source, siblings[name]) for name in names)
        return RepoListing(source, _checked_hash(source, info.sha), _licence(info), hub_repo_folder(source), files)


def hub_file(source: str, sibling: RepoSibling) -> HubFile:
    """A file of the hub's listing. ModelError for an invalid name, size or hash."""
    digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    name = sibling.rfilename
    is_inside = name.isprintable() and not {"", ".", ".."} & {*name.split("/")} and not {"\\", ":"} & {*name}
    if not isinstance(sibling.size, int) or sibling.size < 0 or not is_inside:
        raise ModelError(f"{source}: the hub lists {name!r} without a size, or with an invalid name")
    return HubFile(name, sibling.size, _checked_hash(source, digest))


def _checked_hash(source: str, digest: str | None) -> str:
    """Check a hash, which becomes part of a path."""
    if digest is None or not is_digest(digest):
        raise ModelError(f"{source}: the hub lists no valid hashes")
    return digest


def _licence(info: ModelInfo) -> str:
    model_card = info.card_data
    names = [model_card.get("license_name"), model_card.get("license")] if model_card else []
    names += [tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")]
    licence = next((str(name) for name in names if name), "unknown")
    return "".join(character for character in licence if character.isprintable())


@contextmanager
def hub_errors_as_model_errors(source: str) -> Generator[None]:
    """Raise a ModelError for every error of the hub inside the block."""
    hub = constants.ENDPOINT
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise ModelError(f"{source}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it") from error
    except GatedRepoError as error:
        hint = f"accept its licence at {hub}/{hub_id(source)}, then log in ('hf auth login', or HF_TOKEN)"
        raise ModelError(f"{source}: the model is gated: {hint}") from error
    except RepositoryNotFoundError as error:
        hint = "check the name; a private model needs 'hf auth login' or HF_TOKEN"
        raise ModelError(f"{source}: the hub has no such model, or it is private: {hint}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        message = STATUS_MESSAGES.get(status, f"the hub answers {status}; try again later")
        raise ModelError(f"{source}: {message}") from error
    except HFValidationError as error:
        raise ModelError(f"{source}: not a hub id like org/name") from error
    except HTTPError as error:
        message = f"the hub ({hub}) cannot be reached or closed the connection ({first_line(error)})"
        has_part = any(hub_repo_folder(source).glob("blobs/*.incomplete"))
        raise ModelError(f"{source}: {message}{'; the downloaded part is kept' * has_part}; try again later") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"the server at {hub} is not a hub; does this network have a login page?"
        raise ModelError(f"{source}: {message}") from error


def offline_reason() -> str:
    """Why nothing can be downloaded from the hub now; "" when it answers."""
    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    try:
        with bounded_response(constants.ENDPOINT, MAX_LISTING_BYTES, 1, PROBE_SECONDS):
            return ""
    except (HTTPError, OSError) as error:
        return "" if isinstance(error, HfHubHTTPError) else f"the hub ({constants.ENDPOINT}) cannot be reached"
