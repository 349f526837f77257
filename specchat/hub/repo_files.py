"""What of a model on the hub is needed: its files with sizes and hashes, its licence, and where in the cache they go.

Asks the hub once and fetches nothing. What the hub says is looked at before it becomes a path or a line on a terminal.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import ModelInfo, RepoSibling

from specchat.errors import ModelError
from specchat.models.fetch import needed_files
from specchat.models.http_errors import hub_errors_as_model_errors

SHA256_DIGITS = 64
HASH_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class HubFile:
    """A file as the hub lists it. Its digest is the name of its blob in the cache: sha256 if large, else git's sha1."""

    name: str
    size_bytes: int
    digest: str

    def digest_of(self, path: Path) -> str:
        """The digest of what really lies there."""
        with path.open("rb") as content:
            if len(self.digest) == SHA256_DIGITS:
                return hashlib.file_digest(content, "sha256").hexdigest()
            small = content.read()
        return hashlib.sha1(b"blob %d\0" % len(small) + small, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class RepoListing:
    """What of a model is needed, and where in the cache it goes."""

    source: str
    commit: str
    licence: str
    folder: Path
    files: tuple[HubFile, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all of it."""
        return sum(file.size_bytes for file in self.files)

    @property
    def snapshot(self) -> Path:
        """The folder that a model is loaded from."""
        return self.folder / "snapshots" / self.commit

    def missing_files(self) -> list[HubFile]:
        """Those that are to be fetched, the half ones among them."""
        return [
            file
            for file in self.files
            if not self.blob_path(file).exists() and not (self.snapshot / file.name).exists()
        ]

    def blob_path(self, file: HubFile) -> Path:
        """Where the content of a file is kept."""
        return self.folder / "blobs" / file.digest

    def partial_path(self, file: HubFile) -> Path:
        """Where the content grows until it is whole and right."""
        return self.folder / "blobs" / f"{file.digest}.incomplete"

    def downloaded_bytes(self, file: HubFile) -> int:
        """How much of a missing file came before."""
        partial = self.partial_path(file)
        return min(partial.stat().st_size, file.size_bytes) if partial.exists() else 0

    def remaining_bytes(self) -> int:
        """What is still to be fetched."""
        return sum(file.size_bytes - self.downloaded_bytes(file) for file in self.missing_files())


def list_repo_files(source: str, *, is_draft: bool = False) -> RepoListing:
    """What the hub has of a model or head that we would read; ModelError in one line when it gives nothing."""
    with hub_errors_as_model_errors(source):
        info = HfApi(endpoint=constants.ENDPOINT).model_info(source, files_metadata=True)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
    files = tuple(hub_file(source, siblings[name]) for name in needed_files(source, list(siblings), is_draft=is_draft))
    return RepoListing(source, _checked_hash(source, info.sha), _licence(info), repo_cache_folder(source), files)


def repo_cache_folder(source: str) -> Path:
    """Where the cache keeps everything of a model."""
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="model")


def hub_file(source: str, sibling: RepoSibling) -> HubFile:
    """A file of the hub's list, once its name and hash are what they should be."""
    digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    if sibling.size is None or not sibling.rfilename.isprintable():
        raise ModelError(f"{source}: the hub does not say how large {sibling.rfilename!r} is, or its name is none")
    return HubFile(sibling.rfilename, sibling.size, _checked_hash(source, digest))


def _checked_hash(source: str, digest: str | None) -> str:
    """A hash becomes a part of paths, so it must be one."""
    if digest is None or not HASH_PATTERN.fullmatch(digest):
        raise ModelError(f"{source}: the hub gives no hashes to compare with")
    return digest


def _licence(info: ModelInfo) -> str:
    """As its card says, or as it is tagged."""
    card = info.card_data
    named = [card.get("license_name"), card.get("license")] if card else []
    tagged = [tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")]
    said = next((str(name) for name in [*named, *tagged] if name), "not said")
    return "".join(character for character in said if character.isprintable())
