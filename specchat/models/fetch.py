"""What of a model the hub is asked for, and how it comes: from the hub, or from its cache when there is no network.

The one place that says which files are needed: whoever loads, fetches ahead or says a size asks here. Every failure is
one line. Imports the hub's library only when it is asked for something.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from specchat.errors import ModelError

MODEL_FILE_PATTERNS: tuple[str, ...] = (
    "*.json",
    "*.safetensors",
    "*.jinja",
    "*.model",
)  # what is read when a model is loaded
PICKLE_PATTERNS: tuple[str, ...] = ("*.bin", "*.pt")  # they can hold code: taken only where a head has nothing else
MODEL_SAFETENSORS, CONSOLIDATED_SAFETENSORS = (
    "model*.safetensors",
    "consolidated*.safetensors",
)  # the same weights under the names of another program


def needed_files(source: str, names: Sequence[str], *, is_draft: bool = False) -> list[str]:
    """Those of the files that are read when it is loaded; pickles only of a head that has no safetensors.

    A head is known by having no tokenizer; what was called a draft may be one that has.
    """
    wanted = sorted(without_consolidated(_matching(names, MODEL_FILE_PATTERNS)))
    if any(name.endswith(".safetensors") for name in wanted):
        return wanted
    pickles = sorted(_matching(names, PICKLE_PATTERNS))
    if pickles and (is_draft or "tokenizer.json" not in names):
        return wanted + pickles
    only = "weights are pickles, which can hold code" if pickles else "files hold no *.safetensors"
    raise ModelError(f"{source}: its {only}; look for a copy with *.safetensors")


def without_consolidated(names: Sequence[str]) -> list[str]:
    """The files but for a second copy of the weights. consolidated* stays where there is no model*."""
    has_ours = any(fnmatch(_base_name(name), MODEL_SAFETENSORS) for name in names)
    return [name for name in names if not (has_ours and fnmatch(_base_name(name), CONSOLIDATED_SAFETENSORS))]


def fetch_from_hub(source: str, *, is_draft: bool = False) -> Path:
    """The folder of a hub id with the files that are needed; ModelError says why there is none and what to do."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        names = _hub_file_names(source)
        if names is None and (folder := cached_model_folder(source, is_draft=is_draft)):
            return folder
        chosen = (
            list(MODEL_FILE_PATTERNS)
            if names is None
            else [glob.escape(name) for name in needed_files(source, names, is_draft=is_draft)]
        )
        return Path(snapshot_download(source, allow_patterns=chosen))
    except LocalEntryNotFoundError as error:
        offline = os.environ.get("HF_HUB_OFFLINE") in ("1", "true", "True")
        why = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
        message = f"{source}: not on this machine, and {why}; fetch it once while online, or give a folder"
        raise ModelError(message) from error
    except HFValidationError as error:
        raise ModelError(f"{source}: neither a folder nor a hub id like org/name") from error
    except HfHubHTTPError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"{source}: the hub does not give it out: {lines[0][:200]}") from error


def cached_model_folder(source: str, *, is_draft: bool = False) -> Path | None:
    """The folder of a hub id that is whole in the cache; None when it is not. Asks nobody.

    The hub's library may remember the list of all files there, so what was left out must be left out again.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    everything = [*MODEL_FILE_PATTERNS, *(PICKLE_PATTERNS if is_draft else ())]
    for allowed, ignored in (
        (everything, []),
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
    """The names of all files that the hub has of it; None when it says nothing, and the cache must do."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    from specchat.models.http_errors import HTTPError

    try:
        info = HfApi(endpoint=constants.ENDPOINT).model_info(source)
    except (HTTPError, OfflineModeIsEnabled):
        return None
    return [sibling.rfilename for sibling in info.siblings or []]


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def _base_name(name: str) -> str:
    return PurePosixPath(name).name
