"""Weights that were quantized once, on the disk: the next start reads them and quantizes nothing.

A folder has the layers of one model in one format, as passes compute with them on one kind of machine, a file each; all
of that is in its name. It appears whole or not at all. A damaged one is removed, and so are those that were used
longest ago. Where the memory does not hold the weights they stay in the files, whose pages the system reads when a pass
needs them. Knows no network.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from specchat.errors import ModelError, first_line
from specchat.forward.linear.byte_linear import ByteLinear
from specchat.forward.linear.linear import FloatLinear, NativeLinear, OneDnnLinear, QuantLinear
from specchat.forward.linear.packed_linear import PackedFormat, PackedLinear, PackedPart, empty_on_huge_pages
from specchat.forward.linear.quant_linear import (
    DequantizedLinear,
    Nf4DequantizedLinear,
    Nf4Linear,
    Nf4PackedLinear,
)
from specchat.forward.native.native_ops import native_kernels
from specchat.paths import kept_weights_folder, kept_weights_prefix
from specchat.weights.load_options import KEPT_FORMATS

log = logging.getLogger(__name__)

MIN_SOURCE_BYTES = 2**28  # less is quantized in a second or two
MAX_KEPT_BYTES = 64 * 2**30  # of all models together
SPARE_DISK_BYTES = 4 * 2**30
UNFINISHED = ".unfinished"
KEPT_CLASSES = (  # nothing else is made from a file
    DequantizedLinear, Nf4PackedLinear, Nf4Linear, Nf4DequantizedLinear, PackedLinear, PackedPart,
    PackedFormat,
)  # fmt: skip

NOT_KEPT = FloatLinear, NativeLinear, OneDnnLinear, ByteLinear  # floats, and what a GPU rounds in less time


@dataclass
class KeptWeights:
    """The layers of one model in a folder. Those that it lacks are made, and written; `maps`: they stay there."""

    folder: Path
    device: torch.device
    maps: bool
    is_writing: bool

    def linear(self, name: str, make: Callable[[], QuantLinear]) -> QuantLinear:
        """The layer of this name: from its file, else made now, and written if it is a quantized one."""
        path = self.folder / f"{blake2b(name.encode(), digest_size=8).hexdigest()}.pt"
        if not self.is_writing and (known := self._read(path)):
            return known
        linear = make()
        if not self.is_writing or isinstance(linear, NOT_KEPT):
            return linear
        try:
            torch.save(_with_tensors(linear, lambda tensor: tensor.cpu()), path)
        except (OSError, RuntimeError) as error:
            self.is_writing = False
            if self.maps:
                raise ModelError(f"{path}: cannot be written: {first_line(error)}; free some space") from error
            log.warning("quantized weights are not kept: %s", first_line(error))
            return linear
        return (self._read(path) if self.maps else None) or linear

    def _read(self, path: Path) -> QuantLinear | None:
        """The layer in a file; None for none, and for a damaged one, with which all of the folder goes."""
        if not path.exists():
            return None
        try:
            with torch.serialization.safe_globals([*KEPT_CLASSES, _quant_state()]):
                linear = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            return _with_tensors(linear, self._placed)
        except (OSError, RuntimeError, ValueError, EOFError, KeyError, UnpicklingError) as error:
            log.warning("%s is damaged and removed: %s", self.folder.name, first_line(error))
            shutil.rmtree(self.folder, ignore_errors=True)
            return None

    def _placed(self, mapped: Tensor) -> Tensor:
        if self.device.type != "cpu" or self.maps:
            return mapped.to(self.device)
        return empty_on_huge_pages(1, mapped.nbytes)[0].view(mapped.dtype).view(mapped.shape).copy_(mapped)


def _quant_state() -> type:
    from bitsandbytes.functional import QuantState  # a second to import

    return QuantState


def _with_tensors(value: Any, move: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a layer, or of a part of it, with all its tensors moved."""
    if isinstance(value, Tensor):
        return move(value)
    if type(value) is tuple:
        return tuple(_with_tensors(each, move) for each in value)
    if not isinstance(value, (*KEPT_CLASSES, _quant_state())):
        return value
    other = copy(value)
    for name, each in vars(value).items():
        object.__setattr__(other, name, _with_tensors(each, move))
    return other


@contextmanager
def kept_weights(
    source: Path, quant_format: str, dtype: torch.dtype | None, device: torch.device, cpu_layers: int = 0, *,
    maps: bool = False,
) -> Generator[KeptWeights | None]:  # fmt: skip
    """The kept weights of a folder of safetensors; None where none are kept. A load that fails leaves nothing."""
    files = sorted(source.glob("*.safetensors"))
    source_bytes = sum(each.stat().st_size for each in files)
    if quant_format not in KEPT_FORMATS or not files or (source_bytes < MIN_SOURCE_BYTES and not maps):
        yield None
        return
    place = f"{device.type}, {cpu_layers} on the CPU" if cpu_layers else device.type
    folder = kept_weights_folder() / f"{kept_weights_prefix(source)}{_identity(files, quant_format, dtype, place)}"
    if folder.is_dir():
        with suppress(OSError):  # a cache that cannot be written
            os.utime(folder)
        yield KeptWeights(folder, device, maps, is_writing=False)
        return
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}{UNFINISHED}")
    try:
        kept = KeptWeights(unfinished, device, maps, is_writing=_has_room(unfinished, source_bytes))
        if maps and not kept.is_writing:
            raise ModelError(f"{source}: the memory does not hold its weights, and neither does the disk of {folder}")
        yield kept
        with suppress(OSError):  # another process was sooner
            if kept.is_writing:
                unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _has_room(folder: Path, needed_bytes: int) -> bool:
    """Make the folder, and room for it: those that were used longest ago go. False where the disk is too full."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = needed_bytes
        for _used, each in sorted(((each.stat().st_mtime, each) for each in folder.parent.iterdir()), reverse=True):
            held += sum(file.stat().st_size for file in each.iterdir())
            if held > MAX_KEPT_BYTES and each != folder:
                shutil.rmtree(each, ignore_errors=True)
        return shutil.disk_usage(folder).free > needed_bytes + SPARE_DISK_BYTES
    except OSError as error:
        log.warning("quantized weights are not kept: %s", error)
        return False


def _identity(files: list[Path], quant_format: str, dtype: torch.dtype | None, place: str) -> str:
    """A name for all that decides the bytes of the layers."""
    stored = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    machine = [place, torch.backends.cpu.get_cpu_capability(), native_kernels().lanes]
    code = [digest_of_passes(), torch.__version__, version("bitsandbytes")]
    identity = json.dumps([stored, quant_format, str(dtype), machine, code])
    return blake2b(identity.encode(), digest_size=8).hexdigest()


@lru_cache
def digest_of_passes() -> str:
    """Of the code that computes rows: other code may round, or pack weights, differently."""
    digest = blake2b(digest_size=8)
    code = (Path(__file__).parents[1] / "forward").rglob("*.*")
    for path in sorted(each for each in code if each.suffix in (".py", ".cpp", ".h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
