"""Reads the rows of a GGUF tensor as they are stored. Knows no block types and imports no torch.

The file is not mapped: a mapped file that another program shortens ends the process that reads it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from threading import Lock

import numpy

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_file import GgufTensor


class TensorBytes:
    """The rows of a tensor, in a file that stays open. Thread-safe."""

    def __init__(self, tensor: GgufTensor) -> None:
        self._tensor, self._lock = tensor, Lock()
        try:
            self._file = tensor.path.open("rb", buffering=0)
        except OSError as error:
            raise ModelError(f"{tensor.path}: cannot be read: {error.strerror or error}") from error
        weakref.finalize(self, self._file.close)
        self._status = self._file_status()

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Rows that follow each other. uint8 [rows, bytes of a row]; ModelError when the file has changed."""
        blocks = numpy.empty((last - first, self._tensor.row_bytes), numpy.uint8)
        with self._lock:
            self._read_into(blocks.reshape(-1).data, first)
            self._check_status()
        return blocks

    def single_rows(self, rows: Sequence[int]) -> numpy.ndarray:
        """Rows from anywhere. uint8 [rows, bytes of a row]; ModelError when the file has changed."""
        blocks = numpy.empty((len(rows), self._tensor.row_bytes), numpy.uint8)
        with self._lock:
            for place, row in zip(blocks, rows, strict=True):
                self._read_into(place.data, row)
            self._check_status()
        return blocks

    def _read_into(self, place: memoryview, row: int) -> None:
        self._file.seek(self._tensor.offset + row * self._tensor.row_bytes)
        while len(place):
            count = self._file.readinto(place)
            if not count:
                raise self._changed()
            place = place[count:]

    def _check_status(self) -> None:
        if self._file_status() != self._status:
            raise self._changed()

    def _changed(self) -> ModelError:
        return ModelError(
            f"{self._tensor.path}: has changed since it was opened; is it still being downloaded? Load the model again"
        )

    def _file_status(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns
