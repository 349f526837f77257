"""Where a model or head is: embedded, a folder, a GGUF file, or a hub id, which is downloaded.

A GGUF file gets a folder with its tokenizer and config when a model is to be loaded, which is found again when only a
plan is wanted.
"""

import os
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.catalog import did_you_mean
from specchat.hub.safetensors_headers import cached_model_folder
from specchat.paths import HUB_PREFIX, is_hub_id
from specchat.profile.keys import STARTER
from specchat.profile.shipped_drafters import starter_drafter
from specchat.weights.gguf.gguf_preparation import Report, find_prepared, no_report, prepared_gguf
from specchat.weights.gguf.gguf_sources import OLLAMA_PREFIX, OLLAMA_VARIABLE, local_gguf
from specchat.weights.load_options import EMBEDDED

HEAD_ROLE = "head"  # beside "target" and "draft"


def find_model(source: str, role: str = "target", report: Report = no_report) -> Path:
    """The folder of a model or head: `embedded`, `starter`, a local folder or GGUF file, or a hub id.

    A hub id is downloaded unless it is cached, a GGUF file is prepared unless it was before; `report` is called with
    what is done for it, the bytes done and the bytes in all. That of a head may be a file.
    """
    if gguf := local_gguf(source):
        folder = prepared_gguf(gguf, report)
        return folder if role == HEAD_ROLE else _checked_folder(folder, source)
    if role == HEAD_ROLE:
        return _local_head(source) or _fetch(source, report, is_draft=True)
    if folder := _local_folder(source, role):
        return folder
    fetched = _fetch(source, report)
    gguf = local_gguf(source)
    return prepared_gguf(gguf, report) if gguf else _checked_folder(fetched, source)


def find_local_model(source: str, role: str = "target") -> Path | None:
    """As `find_model`, but None for a GGUF file that is not prepared yet, and for a hub id that is not completely in
    the cache. Uses no network.
    """
    if gguf := local_gguf(source):
        return find_prepared(gguf)
    if role == HEAD_ROLE:
        return _local_head(source) or cached_model_folder(source, is_draft=True)
    return _local_folder(source, role) or cached_model_folder(source)


def absolute_source(source: str) -> str:
    """The same model for a process in another folder, and with another OLLAMA_MODELS."""
    if source.startswith(OLLAMA_PREFIX) and os.environ.get(OLLAMA_VARIABLE):
        source = str(local_gguf(source))
    return str(Path(source).absolute()) if source and Path(source).exists() else source.removeprefix(HUB_PREFIX)


def _fetch(source: str, report: Report = no_report, *, is_draft: bool = False) -> Path:
    from specchat.hub.pull import fetch_from_hub  # imports huggingface_hub

    return fetch_from_hub(source, report, is_draft=is_draft)


def model_path(source: str) -> Path | None:
    """The GGUF file, folder or other file of a model on this disk; None for a hub id of safetensors."""
    return local_gguf(source) or local_path(source)


def local_path(source: str, role: str = "target") -> Path | None:
    """What a source names on this disk beside the hub's cache: a part of specchat ("embedded", "embedded/eagle3",
    "starter/draft"), a folder or a file.
    """
    own = EMBEDDED / (role if source == "embedded" else source.removeprefix("embedded/"))
    if source == "embedded" or (source.startswith("embedded/") and own.is_dir()):
        return own
    path = starter_drafter(source) or Path(source).expanduser()
    return path if path.exists() else None


def _local_folder(source: str, role: str) -> Path | None:
    """A checked local folder; None for a hub id."""
    if source == STARTER:  # on this disk it is a GGUF file
        raise ModelError("starter: not on this disk; 'specchat models pull starter' downloads it")
    if path := local_path(source, role):
        return _checked_folder(path, source)
    if not is_hub_id(source):
        raise ModelError(
            f"{source}: no such folder;{did_you_mean(source)} give a model's folder, a GGUF file, a hub id like "
            "org/name, or 'embedded'"
        )
    return None


def _local_head(source: str) -> Path | None:
    """A local folder or file; None for a hub id."""
    if path := local_path(source):
        return _with_regular_files(path)
    if not is_hub_id(source):
        raise ModelError(f"{source}: no such folder or file; give a head's folder, a hub id, or 'embedded/eagle3'")
    return None


def _checked_folder(folder: Path, source: str) -> Path:
    if not folder.is_dir():
        raise ModelError(
            f"{source}: not a model; a model is a GGUF file, or a folder with config.json and *.safetensors"
        )
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ModelError(f"{source}: not a model ({name} is missing)")
    return _with_regular_files(folder)


def _with_regular_files(path: Path) -> Path:
    """The same path; ModelError for a file that a reader might wait for forever, such as a named pipe."""
    for file in path.iterdir() if path.is_dir() else [path]:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ModelError(f"{file}: cannot be loaded: a pipe, socket or device, and no regular file")
    return path
