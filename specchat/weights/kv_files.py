"""KV caches on disk: a conversation that is opened after its engine has ended reads only what is new.

A file holds the tokens of one text and the rows that a model computed for them, with the last states of recurrent
layers. They are those of one model, in one form, on one kind of machine: the identity of all three is part of the name.
A file that is damaged, or has other shapes than the model's, is ignored and removed. Written by a thread, and the files
that were used longest ago go first. Knows no conversation and no profile.
"""

import json
import logging
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specchat.engine.cache import StackShape
from specchat.engine.decode import TextRows, common_prefix_length
from specchat.errors import CacheError
from specchat.paths import KV_FILE_ENDING, remove_kv_file

log = logging.getLogger(__name__)

FORMAT_VERSION = "1"
MIN_TOKENS = 256  # fewer are read again as fast as from a file
MAX_WRITING_SECONDS = 3600.0
TOKENS = "tokens"
STATE = re.compile(r"state (?P<length>\d+) (?P<name>.+)")  # of recurrent layers, after so many tokens
CHECKSUMS = "crc32"


def kv_identity(parts: Mapping[str, object]) -> str:
    """A name for all that decides the numbers of a row."""
    text = json.dumps([FORMAT_VERSION, torch.__version__, parts], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass
class KVFiles:
    """The files of one model in a folder. `fits`: whether the model can go on from these rows."""

    folder: Path
    identity: str
    fits: Callable[[TextRows], bool] = lambda _rows: True
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "kv-files"))
    _pending: list[Future[None]] = field(default_factory=list[Future[None]])

    def store(self, name: str, rows: TextRows, budget_bytes: int) -> None:
        """Write the file of a text, in the background; nothing if it is short, or larger than the budget."""
        if (
            len(rows.tokens) > MIN_TOKENS
            and sum(tensor.nbytes for tensor in _named_tensors(rows).values()) <= budget_bytes
        ):
            self._pending.append(self._writer.submit(self._write, name, rows, budget_bytes))

    def longest_prefix(self, tokens: Sequence[int], known: int = 0) -> TextRows | None:
        """The longest beginning of a text that any file has; None for fewer than `MIN_TOKENS` beyond the known ones.

        With recurrent layers it ends where the file has a state.
        """
        if len(tokens) < known + MIN_TOKENS:
            return None
        self.wait()
        shared = {path: common_prefix_length(_read_tokens(path), tokens) for path in self._files()}
        path = max(shared, key=lambda each: shared[each], default=None)
        if path is None or shared[path] < known + MIN_TOKENS:
            return None
        return self._read(path, list(tokens[: shared[path]]))

    def wait(self) -> None:
        """Wait until everything is written."""
        pending, self._pending = self._pending, []
        for each in pending:
            each.result()

    def _files(self) -> Iterator[Path]:
        return self.folder.glob(f"*.{self.identity}{KV_FILE_ENDING}")

    def _read(self, path: Path, tokens: list[int]) -> TextRows | None:
        """The beginning of a text from its file; None without one, and if the file is damaged."""
        with _removed_if_damaged(path), _opened(path) as file:
            checksums = json.loads((file.metadata() or {}).get(CHECKSUMS, "{}"))
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if {name: _checksum(tensor) for name, tensor in tensors.items()} != checksums:
                raise CacheError("its checksums do not match")
            rows = _text_rows(tokens, tensors)
            if rows is not None and not self.fits(rows):
                raise CacheError("its rows are not those of this model")
            os.utime(path)
            return rows
        return None

    def _write(self, name: str, rows: TextRows, budget_bytes: int) -> None:
        """Write, and remove older files beyond the budget. A full disk costs nothing but the file."""
        tensors = _named_tensors(rows)
        tensors[TOKENS] = torch.tensor(rows.tokens, dtype=torch.int32)
        metadata = {CHECKSUMS: json.dumps({key: _checksum(tensor) for key, tensor in tensors.items()})}
        path = self.folder / f"{name}.{self.identity}{KV_FILE_ENDING}"
        partial = path.with_suffix(f".{os.getpid()}")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            partial.touch(mode=0o600, exist_ok=False)
            save_file(tensors, partial, metadata)
            if path.is_dir():
                remove_kv_file(path)
            partial.replace(path)
            _remove_oldest(self.folder, path.lstat().st_mtime, budget_bytes)
        except (OSError, SafetensorError) as error:
            log.warning("the KV cache of a conversation is not kept: %s", error)
            with suppress(OSError):
                partial.unlink()


def _named_tensors(rows: TextRows) -> dict[str, Tensor]:
    """What a file holds, by the names there, without the tokens."""
    stacks = {"x".join(map(str, shape)): stack.contiguous() for shape, stack in rows.stacks.items()}
    states = {
        f"state {length} {name}": tensor for length, state in rows.states.items() for name, tensor in state.items()
    }
    return stacks | states


def _text_rows(tokens: list[int], tensors: dict[str, Tensor]) -> TextRows | None:
    """The beginning of a text that a file with these tensors has; None where it has no state of it."""
    states, stacks = dict[int, dict[str, Tensor]](), dict[StackShape, Tensor]()
    for key, tensor in tensors.items():
        if state := STATE.fullmatch(key):
            states.setdefault(int(state["length"]), {})[state["name"]] = tensor
        elif key != TOKENS:
            stacks[tuple(map(int, key.split("x")))] = tensor
    shared = {length: state for length, state in states.items() if length < len(tokens)}
    if states and not shared:
        return None
    length = max(shared, default=len(tokens) - 1)
    return TextRows(tokens[: length + 1], {shape: stack[:, :, :length] for shape, stack in stacks.items()}, shared)


def _read_tokens(path: Path) -> list[int]:
    """The tokens of a file; none of one that is damaged."""
    with _removed_if_damaged(path), _opened(path) as file:
        return [int(token) for token in file.get_tensor(TOKENS).tolist()]
    return []


def _checksum(tensor: Tensor) -> int:
    return crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _opened(path: Path) -> Any:
    if not stat.S_ISREG(path.lstat().st_mode):  # to open a pipe is to wait for its other end
        raise CacheError("it is no file")
    return safe_open(path, framework="pt")


@contextmanager
def _removed_if_damaged(path: Path) -> Generator[None]:
    """Go on behind the block where a file cannot be read, without the file."""
    try:
        yield
    except (OSError, ValueError, TypeError, LookupError, RuntimeError, SafetensorError, CacheError) as error:
        log.warning("%s is damaged and removed: %s", path.name, error)
        remove_kv_file(path)


def _remove_oldest(folder: Path, now: float, budget_bytes: int) -> None:
    """Keep the files that were used last, of all models, up to the budget, and none that a killed engine left half."""
    held = 0  # where the clock was set back, a file of tomorrow is as old as it is far away
    for age, path in sorted((abs(now - path.lstat().st_mtime), path) for path in folder.iterdir()):
        status = path.lstat()
        held += status.st_size
        is_left_half = path.suffix != KV_FILE_ENDING and age > MAX_WRITING_SECONDS
        if stat.S_ISREG(status.st_mode) and (held > budget_bytes or is_left_half):
            path.unlink(missing_ok=True)
