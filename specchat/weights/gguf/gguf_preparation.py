"""A GGUF file → a folder in specchat's cache with all that is small: config.json, the tokenizer, and a manifest.

The weights stay in the GGUF file. The folder is made once, and a changed file gets another one. Imports no torch.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import Any

from specchat.errors import ModelError
from specchat.file_lock import try_lock
from specchat.paths import cache_folder, kept_weights_of, read_json_object
from specchat.weights.gguf.gguf_file import GgufFile, read_gguf, shard_paths, size_and_time
from specchat.weights.gguf.gguf_manifest import MANIFEST_FILE, GgufManifest, WeightChange

Report = Callable[[str, int, int], None]  # what happens, bytes done, bytes in all
FORMAT = 3  # raised when preparation changes, so that folders are made anew
UNFINISHED_SUFFIX = ".partial"
LOCK_RETRY_SECONDS = 0.2


def no_report(_what: str, _done: int, _total: int) -> None:
    """For a caller that shows no progress."""


def prepared_gguf(path: Path, report: Report = no_report) -> Path:
    """The folder that was made from this GGUF file; it is made now if it is missing. `report` hears of the progress."""
    if folder := find_prepared(path):
        return folder
    file = read_gguf(path)
    folder = _folder_of(file.paths)

    def prepare(unfinished: Path) -> None:
        report(f"preparing {file.path.name}", 0, 0)
        _remove_outdated(file, folder.parent)
        _write_files(file, unfinished)

    make_once(folder, file.path, prepare, report, "prepared")
    return folder


def make_once(folder: Path, source: Path, write_into: Callable[[Path], None], report: Report, done: str) -> None:
    """Make the folder of a file unless it is there: complete or not at all, by one process while others wait.

    `write_into` fills it beside its place, so that a crash leaves no half folder. ModelError where nothing can be
    written: it cannot be `done`.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock_file(folder).open("a", encoding="ascii") as lock:
            while not try_lock(lock):
                report(f"waiting for another process: {source.name}", 0, 0)
                sleep(LOCK_RETRY_SECONDS)
            if not folder.is_dir():
                _make(folder, write_into)
    except OSError as error:
        raise ModelError(f"{source}: cannot be {done} in {folder.parent}: {error.strerror or error}") from error


def find_prepared(path: Path) -> Path | None:
    """The folder that was made from this GGUF file before; None if there is none."""
    folder = _folder_of(shard_paths(path))
    return folder if folder.is_dir() else None


def _folder_of(shards: Sequence[Path]) -> Path:
    """The place of the folder: another one when a file changes."""
    source = shards[0].resolve()  # two links to a file share a folder
    identity = [FORMAT, str(source), *map(size_and_time, shards)]
    digest = sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return cache_folder() / "gguf" / f"{source.name.removesuffix('.gguf')[:80]}-{digest}"


def _remove_outdated(file: GgufFile, parent: Path) -> None:
    """Remove what crashes left, and folders of older versions, of earlier contents and of files that are gone."""
    _remove_unfinished(parent)
    for manifest in parent.glob(f"*/{MANIFEST_FILE}"):
        source = read_json_object(manifest).get("path")
        if isinstance(source, str) and (Path(source) == file.path.resolve() or not Path(source).exists()):
            _remove_folder(manifest.parent)


def _write_files(file: GgufFile, folder: Path) -> None:
    from specchat.text.tokenizer import Tokenizer
    from specchat.weights.gguf.gguf_families import map_head, map_model
    from specchat.weights.gguf.gguf_rows import check_dequantizable
    from specchat.weights.gguf.gguf_tokenizer import tokenizer_files

    head = map_head(file)
    model = head or map_model(file)
    types = {each.source.type_name: each.source for each in model.tensors if each.change is not WeightChange.IDS}
    for tensor in types.values():
        check_dequantizable(tensor)
    _write_json(folder / MANIFEST_FILE, GgufManifest.from_file(file, model.tensors).to_json())
    if head is not None:  # it has the tokens of its target
        _write_json(folder / "config.json", head.config)
        return
    files = tokenizer_files(file.path, file.metadata, model.config["vocab_size"])
    _write_json(folder / "tokenizer.json", files.tokenizer)
    _write_json(folder / "tokenizer_config.json", files.tokenizer_config)
    _write_json(folder / "generation_config.json", files.generation_config)
    _write_json(folder / "config.json", model.config | files.config_ids)
    if files.chat_template is not None:
        (folder / "chat_template.jinja").write_text(files.chat_template, encoding="utf-8")
    try:
        Tokenizer(folder)  # one that cannot be used leaves no folder
    except ModelError as error:
        raise ModelError(str(error).replace(str(folder), str(file.path))) from error


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Without line breaks: with them Python's encoder takes ten times as long for a vocabulary."""
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _remove_unfinished(parent: Path) -> None:
    """Remove what crashes left below this folder, but nothing that a process is making."""
    for unfinished in (*parent.glob(f"*{UNFINISHED_SUFFIX}"), *parent.glob(f"*/*{UNFINISHED_SUFFIX}")):
        folder = unfinished.with_name(unfinished.name.removesuffix(UNFINISHED_SUFFIX))
        with _lock_file(folder).open("a", encoding="ascii") as lock:
            if try_lock(lock):
                shutil.rmtree(unfinished, ignore_errors=True)


def _remove_folder(folder: Path) -> None:
    """Remove a folder that is not made again, its weights that stay on the disk, and its lock."""
    for each in (folder, *kept_weights_of(folder)):
        shutil.rmtree(each, ignore_errors=True)
    _lock_file(folder).unlink(missing_ok=True)


def _make(folder: Path, write_into: Callable[[Path], None]) -> None:
    unfinished = folder.with_name(f"{folder.name}{UNFINISHED_SUFFIX}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        write_into(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
