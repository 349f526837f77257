"""Which files of a hub id are needed, and how to get them: from the hub, or from its cache when there is no network.

Loading, `models pull` and size estimates all use this list of files. Every error message is one line. huggingface_hub
is imported inside the functions that need it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from specchat.errors import ModelError

MODEL_FILE_PATTERNS: tuple[str, ...] = ("*.json", "*.safetensors", "*.jinja", "*.model")
PICKLE_PATTERNS: tuple[str, ...] = ("*.bin", "*.pt")  # pickles can contain code: only for heads without safetensors
# Some repositories hold the weights twice, the second time under Mistral's names.
MODEL_SAFETENSORS, CONSOLIDATED_SAFETENSORS = "model*.safetensors", "consolidated*.safetensors"
SHA256_DIGITS = 64
HASH_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def needed_files(source: str, names: Sequence[str], *, is_draft: bool = False) -> list[str]:
    """The files that loading reads; pickles only for a head without safetensors.

    A repository without tokenizer.json is a head. With `is_draft`, one with a tokenizer may be a head, too.
    """
    required = sorted(without_consolidated(_matching(names, MODEL_FILE_PATTERNS)))
    if any(name.endswith(".safetensors") for name in required):
        return required
    pickles = sorted(_matching(names, PICKLE_PATTERNS))
    if pickles and (is_draft or "tokenizer.json" not in names):
        return required + pickles
    problem = "its weights are pickles, which can contain code" if pickles else "it has no *.safetensors"
    remedy = "look for a copy with *.safetensors"
    if any(name.endswith(".gguf") for name in names):
        remedy += ", or download one of its *.gguf files and give the path of the file"
    raise ModelError(f"{source}: {problem}; {remedy}")


def without_consolidated(names: Sequence[str]) -> list[str]:
    """Remove consolidated*.safetensors when model*.safetensors exist: they hold the same weights."""
    has_model_files = any(fnmatch(_base_name(name), MODEL_SAFETENSORS) for name in names)
    return [name for name in names if not (has_model_files and fnmatch(_base_name(name), CONSOLIDATED_SAFETENSORS))]


def fetch_from_hub(source: str, *, is_draft: bool = False) -> Path:
    """Return the folder of a hub id with the needed files. ModelError says what is wrong and what to do."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        names = _hub_file_names(source)
        if names is None and (folder := cached_model_folder(source, is_draft=is_draft)):
            return folder
        patterns = (
            list(MODEL_FILE_PATTERNS)
            if names is None
            else [glob.escape(name) for name in needed_files(source, names, is_draft=is_draft)]
        )
        known = {path.name for path in (repo_cache_folder(source) / "blobs").glob("*")}
        folder = Path(snapshot_download(source, allow_patterns=patterns))
        _check_new_files(source, folder, known)
        return folder
    except LocalEntryNotFoundError as error:
        is_offline = os.environ.get("HF_HUB_OFFLINE") in ("1", "true", "True")
        reason = "HF_HUB_OFFLINE is set" if is_offline else "the hub cannot be reached"
        message = f"{source}: not on this machine, and {reason}; download it once while online, or give a folder"
        raise ModelError(message) from error
    except HFValidationError as error:
        raise ModelError(f"{source}: neither a folder nor a hub id like org/name") from error
    except HfHubHTTPError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"{source}: the hub refuses the download: {lines[0][:200]}") from error


def repo_cache_folder(source: str) -> Path:
    """Where the hub's cache has the files of a hub id."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="model")


def is_digest(text: str) -> bool:
    return HASH_PATTERN.fullmatch(text) is not None


def digest_like(digest: str, path: Path) -> str:
    """The hash of a file, of the same kind as `digest`: sha256 as for large files of the hub, else git's sha1."""
    with path.open("rb") as content:
        if len(digest) == SHA256_DIGITS:
            return hashlib.file_digest(content, "sha256").hexdigest()
        small = content.read()
    return hashlib.sha1(b"blob %d\0" % len(small) + small, usedforsecurity=False).hexdigest()


def _check_new_files(source: str, folder: Path, known: Collection[str]) -> None:
    """Compare downloaded files with the hashes of the hub's listing, which are their names in the cache."""
    for path in sorted(folder.rglob("*")):
        blob = path.resolve()
        if blob.parent.name != "blobs" or blob.name in known or not is_digest(blob.name):
            continue
        if digest_like(blob.name, blob) != blob.name:
            path.unlink()
            blob.unlink()
            raise ModelError(f"{source}: {path.name} differs from the hub's listing and was deleted; run this again")


def cached_model_folder(source: str, *, is_draft: bool = False) -> Path | None:
    """The folder of a hub id when the cache holds all its needed files, else None. Uses no network.

    huggingface_hub may remember the list of all files, so files that were not downloaded must be excluded again.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    all_patterns = [*MODEL_FILE_PATTERNS, *(PICKLE_PATTERNS if is_draft else ())]
    for allowed, ignored in (
        (all_patterns, []),
        (list(MODEL_FILE_PATTERNS), [CONSOLIDATED_SAFETENSORS, f"*/{CONSOLIDATED_SAFETENSORS}"]),
    ):
        try:
            folder = snapshot_download(source, allow_patterns=allowed, ignore_patterns=ignored, local_files_only=True)
        except LocalEntryNotFoundError:
            continue
        if not ignored or any(Path(folder).glob("*.safetensors")):
            return Path(folder)
    return None


def _hub_file_names(source: str) -> list[str] | None:
    """The names of all files of a hub id; None when the hub cannot be reached."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    from specchat.weights.http_errors import HTTPError

    try:
        info = HfApi(endpoint=constants.ENDPOINT).model_info(source)
    except (HTTPError, OfflineModeIsEnabled):
        return None
    return [sibling.rfilename for sibling in info.siblings or []]


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def _base_name(name: str) -> str:
    return PurePosixPath(name).name
