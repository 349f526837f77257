"""A GGUF file → a folder as published on the hub, in specchat's cache. It is made once; then it loads as any folder.

The folder holds bf16 safetensors, config.json and the tokenizer. It is written beside its place and renamed when it is
complete, under a lock, so a crash leaves no half model and two processes do the work once. Imports no torch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import Any

from specchat.errors import ModelError
from specchat.file_lock import try_lock
from specchat.models.gguf_file import GgufFile, read_gguf, shard_paths, size_and_time
from specchat.paths import cache_folder

Report = Callable[[str, int, int], None]  # what happens, bytes done, bytes in all
FORMAT = 1  # raised when conversion changes, so that folders are made anew
SHARD_BYTES = 5 * 10**9
UNFINISHED_SUFFIX = ".partial"
LOCK_RETRY_SECONDS = 0.2
SOURCE_FILE = "gguf.json"  # in a converted folder: the file that it was made from
SPARE_DISK_BYTES = 2**28


def converted_gguf(path: Path, report: Report = lambda _what, _done, _total: None) -> Path:
    """The folder that was made from this GGUF file; it is made now if it is missing. `report` hears of the progress."""
    if folder := find_converted(path):
        return folder
    file = read_gguf(path)
    folder = _folder_of(file.paths)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock_file(folder).open("a", encoding="ascii") as lock:
            while not try_lock(lock):
                report(f"waiting for another process: {file.path.name}", 0, 0)
                sleep(LOCK_RETRY_SECONDS)
            if not folder.is_dir():
                _remove_outdated(file, folder)
                _convert_into(file, folder, report)
    except OSError as error:
        raise ModelError(f"{file.path}: cannot be converted in {folder.parent}: {error.strerror or error}") from error
    return folder


def find_converted(path: Path) -> Path | None:
    """The folder that was made from this GGUF file before; None if there is none."""
    folder = _folder_of(shard_paths(path))
    return folder if folder.is_dir() else None


def _folder_of(shards: Sequence[Path]) -> Path:
    """The place of the folder: another one when a file changes."""
    source = shards[0].resolve()  # two links to a file share a folder
    identity = [FORMAT, str(source), *map(size_and_time, shards)]
    digest = sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return cache_folder() / "gguf" / f"{source.name.removesuffix('.gguf')[:80]}-{digest}"


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove_outdated(file: GgufFile, folder: Path) -> None:
    """Remove what crashes left, and folders made from earlier contents of this file or from files that are gone."""
    shutil.rmtree(_unfinished(folder), ignore_errors=True)
    for partial in folder.parent.glob(f"*{UNFINISHED_SUFFIX}"):
        with _lock_file(partial.with_name(partial.name.removesuffix(UNFINISHED_SUFFIX))).open("a") as lock:
            if try_lock(lock):
                shutil.rmtree(partial, ignore_errors=True)
    for other in folder.parent.glob(f"*/{SOURCE_FILE}"):
        try:
            source = Path(json.loads(other.read_text(encoding="utf-8"))["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if source == file.path.resolve() or not source.exists():
            shutil.rmtree(other.parent, ignore_errors=True)
            _lock_file(other.parent).unlink(missing_ok=True)  # these contents are gone


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{UNFINISHED_SUFFIX}")


def _convert_into(file: GgufFile, folder: Path, report: Report) -> None:
    unfinished = _unfinished(folder)
    unfinished.mkdir()
    try:
        _convert(file, unfinished, report)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _convert(file: GgufFile, folder: Path, report: Report) -> None:
    from specchat.models.gguf_families import map_model
    from specchat.models.gguf_tokenizer import tokenizer_files
    from specchat.models.gguf_weights import check_block_types, stored_bytes, write_weights
    from specchat.models.tokenizer import Tokenizer

    model = map_model(file)
    check_block_types(model.tensors)
    total = sum(map(stored_bytes, model.tensors))
    _check_disk_space(file, folder, total)
    files = tokenizer_files(file.path, file.metadata, model.config["vocab_size"])
    _write_json(folder / "tokenizer.json", files.tokenizer)
    _write_json(folder / "tokenizer_config.json", files.tokenizer_config)
    _write_json(folder / "generation_config.json", files.generation_config)
    _write_json(folder / "config.json", model.config | files.config_ids)
    _write_json(folder / SOURCE_FILE, {"path": str(file.path.resolve()), "quantization": file.quantization})
    if files.chat_template is not None:
        (folder / "chat_template.jinja").write_text(files.chat_template, encoding="utf-8")
    try:
        Tokenizer(folder)  # one that cannot be used is reported before the long part
    except ModelError as error:
        raise ModelError(str(error).replace(str(folder), str(file.path))) from error
    write_weights(model.tensors, folder, lambda done: report(f"converting {file.path.name}", done, total))


def _check_disk_space(file: GgufFile, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + SPARE_DISK_BYTES > free:
        raise ModelError(
            f"{file.path}: converted to bf16 it takes {needed / 1e9:.1f} GB in {folder.parent}, "
            f"and {free / 1e9:.1f} GB "
            "are free; free some space, or set SPECCHAT_CACHE to a folder on another disk"
        )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
