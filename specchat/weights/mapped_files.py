"""Files from which passes read weights while they compute, and what happens when one changes meanwhile.

The memory does not hold these weights: the system reads a page when a pass needs it, and drops it when it needs room.
A page that a file no longer has would end the process, with all its models. `native_guard.cpp` puts zeros there, and
`check`, after every pass, refuses what was computed. Without native kernels nothing is mapped; on Windows, where such a
file cannot become shorter, nothing needs a guard. Knows no layer.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import finalize

from torch import Tensor

from specchat.errors import ModelError
from specchat.forward.native.native_ops import INSTALL_COMPILER, native_kernels


class MappedFiles:
    """The mapped files of a model, in a folder, which may be moved. They are guarded until this is gone."""

    def __init__(self, source: Path, folder: Path, on_bytes: Callable[[int], None] = lambda _bytes: None) -> None:
        """`on_bytes` hears how many are mapped. ModelError where a file that becomes shorter would end the process."""
        native = native_kernels()
        if native.missing_reason and os.name != "nt":
            reason = f"only native kernels can leave them on the disk ({native.missing_reason}); {INSTALL_COMPILER}"
            raise ModelError(f"{source}: the memory does not hold its weights, and {reason}, or choose a smaller model")
        self.bytes, self._source, self._on_bytes = 0, source, on_bytes
        self._folder = native.call("open_mapped_folder", bytes(folder)) if native.library is not None else 0
        if self._folder:
            finalize(self, native.call, "close_mapped_folder", self._folder).atexit = False  # a thread may still read

    def add(self, name: str, tensors: Iterable[Tensor]) -> None:
        """A file of the folder, and the tensors that are mapped from it."""
        ranges = [(each.data_ptr(), each.data_ptr() + each.nbytes) for each in tensors if each.nbytes]
        self.bytes += sum(last - first for first, last in ranges)
        self._on_bytes(self.bytes)
        if self._folder and ranges:
            first, last = min(first for first, _last in ranges), max(last for _first, last in ranges)
            native_kernels().call("guard_mapped_file", self._folder, name.encode(), first, last - first)

    def check(self) -> None:
        """ModelError when a file has changed since it was mapped, or cannot be read; then also from now on."""
        if self._folder and (name := native_kernels().call("changed_mapped_file", self._folder)):
            what = f"the file {ctypes.string_at(name).decode()} of its weights became shorter, or changed"
            raise ModelError(f"{self._source}: {what}, while it was mapped; ask again, and it is made and loaded anew")
