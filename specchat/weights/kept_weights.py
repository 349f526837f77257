"""Weights that were quantized once, on the disk: the next start reads them and quantizes nothing.

A folder has the layers of one model in one format, as passes compute with them on one kind of machine, a file each; all
of that is in its name. It appears whole or not at all. A damaged one is removed, and so are those that were used
longest ago. Where the memory does not hold the weights, also those of a GGUF file, they stay in the files, which are
mapped (`mapped_files`); of these a damaged one is made anew. Knows no network.
"""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from torch import Tensor

from specchat.devices import GGUF_FORMAT
from specchat.errors import ModelError, first_line
from specchat.forward.linear.linear import NativeLinear, QuantLinear, with_tensors
from specchat.forward.linear.packed_linear import (
    PackedFormat,
    PackedLinear,
    PackedPart,
    ReorderedLinear,
    empty_on_huge_pages,
)
from specchat.forward.linear.quant_linear import DequantizedLinear, Nf4DequantizedLinear, Nf4Linear, Nf4PackedLinear
from specchat.forward.native.native_ops import native_kernels
from specchat.paths import kept_weights_folder, kept_weights_prefix
from specchat.weights.gguf.gguf_manifest import GgufManifest
from specchat.weights.gguf.gguf_preparation import Report
from specchat.weights.load_options import KEPT_FORMATS, LoadOptions
from specchat.weights.mapped_files import MappedFiles

log = logging.getLogger(__name__)

MIN_SOURCE_BYTES = 2**28  # less is quantized in a second or two
MAX_KEPT_BYTES = 64 * 2**30  # of all models together
SPARE_DISK_BYTES = 4 * 2**30
UNFINISHED, UNFINISHED_SECONDS = ".unfinished", 3600  # without a new file, it is what a killed process left
KEPT_LAYERS = DequantizedLinear, Nf4PackedLinear, Nf4Linear, Nf4DequantizedLinear, PackedLinear, ReorderedLinear
KEPT_CLASSES = (*KEPT_LAYERS, NativeLinear, PackedPart, PackedFormat)  # nothing else is made from a file
T = TypeVar("T", bound=QuantLinear | tuple[QuantLinear, ...] | None)


@dataclass
class KeptWeights:
    """The layers of one model in a folder. Those that it lacks are made, and written; `mapped`: they stay there."""

    folder: Path
    device: torch.device
    mapped: MappedFiles | None
    is_writing: bool

    def linear(self, name: str, make: Callable[[], T]) -> T:
        """The layer of this name, or a tuple of some: from its file, else made now, and written if it is kept."""
        path = self.folder / f"{blake2b(name.encode(), digest_size=8).hexdigest()}.pt"
        if not self.is_writing and (known := self._read(path)) is not None:
            return known
        made, kinds = make(), KEPT_LAYERS if self.mapped is None else (*KEPT_LAYERS, NativeLinear)
        layers: QuantLinear | tuple[QuantLinear, ...] | None = made
        is_kept = all(isinstance(each, kinds) for each in (layers if isinstance(layers, tuple) else (layers,)))
        if not is_kept or not (self.is_writing or self.mapped):
            return made
        try:
            torch.save(with_tensors(lambda tensor: tensor.cpu(), made), path)
        except (OSError, RuntimeError) as error:
            self.is_writing = False
            if self.mapped:
                raise ModelError(f"{path}: cannot be written: {first_line(error)}; free some space") from error
            log.warning("quantized weights are not kept: %s", first_line(error))
            return made
        return (self._read(path) if self.mapped else None) or made

    def _read(self, path: Path) -> Any:
        """What is in a file; None for none, and for a damaged one, which goes, with all others that are not mapped."""
        if not path.exists():
            return None
        tensors = list[Tensor]()
        try:
            with torch.serialization.safe_globals([*_kept_classes()]):
                layers = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            placed = with_tensors(lambda tensor: tensors.append(tensor) or self._placed(tensor), layers)
        except (OSError, RuntimeError, ValueError, EOFError, KeyError, UnpicklingError) as error:
            log.warning("%s is damaged and removed: %s", self.folder.name, first_line(error))
            path.unlink() if self.mapped else shutil.rmtree(self.folder, ignore_errors=True)
            return None
        if self.mapped:
            self.mapped.add(path.name, tensors)
        return placed

    def _placed(self, stored: Tensor) -> Tensor:
        if self.device.type != "cpu" or self.mapped:
            return stored.to(self.device)
        return empty_on_huge_pages(1, stored.nbytes)[0].view(stored.dtype).view(stored.shape).copy_(stored)


def _kept_classes() -> tuple[type, ...]:
    """What files may hold: of nf4 also the state of bitsandbytes, whose import takes a second."""
    functional = sys.modules.get("bitsandbytes.functional")
    return KEPT_CLASSES if functional is None else (*KEPT_CLASSES, functional.QuantState)


@contextmanager
def kept_weights(
    source: Path, options: LoadOptions, dtype: torch.dtype | None, device: torch.device, report: Report
) -> Generator[KeptWeights | None]:
    """The kept weights of safetensors or, mapped, of a GGUF file; None for none. A load that fails leaves nothing."""
    quant_format, maps = options.quant_format, options.maps_weights
    manifest = GgufManifest.from_folder(source) if maps else None
    files = [each.path for each in manifest.files] if manifest else sorted(source.glob("*.safetensors"))
    source_bytes = sum(each.stat().st_size for each in files)
    if quant_format not in (*KEPT_FORMATS, GGUF_FORMAT) or not files or (source_bytes < MIN_SOURCE_BYTES and not maps):
        yield None
        return
    if quant_format.startswith("nf4"):
        import_module("bitsandbytes.functional")
    place = f"{device.type}, {options.cpu_layers} on the CPU" if options.cpu_layers else device.type
    folder = kept_weights_folder() / f"{kept_weights_prefix(source)}{_identity(files, quant_format, dtype, place)}"
    if folder.is_dir():
        with suppress(OSError):  # a cache that cannot be written
            os.utime(folder)
        yield KeptWeights(folder, device, MappedFiles(source, folder) if maps else None, is_writing=False)
        return
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}{UNFINISHED}")
    try:
        has_room = _has_room(unfinished, source_bytes)
        if maps and not has_room:
            raise ModelError(f"{source}: the memory does not hold its weights, and neither does the disk of {folder}")
        on_bytes = lambda done: report("writing weights that stay on the disk", done, source_bytes)
        kept = KeptWeights(unfinished, device, MappedFiles(source, unfinished, on_bytes) if maps else None, has_room)
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
        for used, each in sorted(((each.stat().st_mtime, each) for each in folder.parent.iterdir()), reverse=True):
            held += sum(file.stat().st_size for file in each.iterdir())
            is_left = each.name.endswith(UNFINISHED) and folder.stat().st_mtime - used > UNFINISHED_SECONDS
            if (held > MAX_KEPT_BYTES or is_left) and each != folder:
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
