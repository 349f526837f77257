"""What the target thought while it read its answers, on disk: training reads it again and again, the target only once.

A shard holds some of the answers: for each the states at the head's taps and after the final norm, side by side, in
bfloat16. A shard that is there is whole, so an interrupted cache goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specchat.engine.model import FINAL_NORM
from specchat.errors import SpecchatError
from specchat.train.distributed import SINGLE_PROCESS, DistributedContext, shared_folder_error
from specchat.train.frozen_target import FrozenTarget
from specchat.train.progress_bar import with_progress_bar
from specchat.train.target_answers import TargetAnswer

MAX_CACHED_TOKENS = 768  # last tokens of an answer and its prompt; the runs of a head keep whole attention matrices
ANSWERS_IN_SHARD = 32
RESERVED_DISK_BYTES = 256 * 2**20  # of the disk that are left to others
BYTES_PER_VALUE = 2  # of a bfloat16


@dataclass(frozen=True)
class FeatureCache:
    """The states of these answers; `width` is that of one state. Taps are those of the head and FINAL, once each."""

    folder: Path
    answers: Sequence[TargetAnswer]
    hidden_state_layers: tuple[int, ...]
    hidden_size: int

    @property
    def total_bytes(self) -> int:
        """What all shards take."""
        return (
            sum(len(cached_positions(answer)) for answer in self.answers)
            * len(self.hidden_state_layers)
            * self.hidden_size
            * BYTES_PER_VALUE
        )

    @property
    def missing_bytes(self) -> int:
        """What those take that are still to be made."""
        missing = [answer for shard in self._missing_shards() for answer in self._shard_answers(shard)]
        return (
            sum(len(cached_positions(answer)) for answer in missing)
            * len(self.hidden_state_layers)
            * self.hidden_size
            * BYTES_PER_VALUE
        )

    def fill(self, target: FrozenTarget, distributed: DistributedContext = SINGLE_PROCESS) -> None:
        """Make the shards that are missing, this process its share of them.

        SpecchatError before the disk is full, or when it is; whole ones stay.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = self._missing_shards()
        check_disk_space(self.missing_bytes, self.folder)
        distributed.barrier()  # all divide the same list: nobody has made a shard yet
        for shard in with_progress_bar(
            "hidden states", distributed.shard(missing), is_shown=distributed.is_main_process
        ):
            members = enumerate(self._shard_answers(shard), start=shard * ANSWERS_IN_SHARD)
            content = {str(index): self._compute_hidden_states(target, answer) for index, answer in members}
            self._write(shard, content)
        distributed.barrier()
        if self._missing_shards():
            raise shared_folder_error(self.folder)

    def hidden_states(self, index: int) -> Tensor:
        """Those of one answer, its last LONGEST tokens. [L, taps * D]"""
        return _open_shard(self._path(index // ANSWERS_IN_SHARD)).get_tensor(str(index))

    def _compute_hidden_states(self, target: FrozenTarget, answer: TargetAnswer) -> Tensor:
        states = target.hidden_states(answer.tokens, self.hidden_state_layers)[-len(cached_positions(answer)) :]
        return states.to("cpu", torch.bfloat16).contiguous()

    def _write(self, shard: int, content: dict[str, Tensor]) -> None:
        path = self._path(shard)
        partial = path.with_suffix(".part")
        try:
            save_file(content, partial)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            raise SpecchatError(
                f"{path.parent}: the hidden states cannot be written ({error}); what is there stays: "
                "make room and start again, or ask less with --most"
            ) from error
        partial.replace(path)

    def _missing_shards(self) -> list[int]:
        return [shard for shard in range(-(-len(self.answers) // ANSWERS_IN_SHARD)) if not self._path(shard).is_file()]

    def _shard_answers(self, shard: int) -> Sequence[TargetAnswer]:
        return self.answers[shard * ANSWERS_IN_SHARD : (shard + 1) * ANSWERS_IN_SHARD]

    def _path(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}.safetensors"


def with_final_norm(hidden_state_layers: tuple[int, ...]) -> tuple[int, ...]:
    """The taps that a cache keeps for a head: its own and FINAL, whose states say what the target would say."""
    return tuple(dict.fromkeys((*hidden_state_layers, FINAL_NORM)))


def cached_positions(answer: TargetAnswer) -> range:
    """The places of an answer with its prompt that are kept."""
    return range(max(0, len(answer.tokens) - MAX_CACHED_TOKENS), len(answer.tokens))


def check_disk_space(needed_bytes: int, folder: Path) -> None:
    """SpecchatError where the disk has not so many bytes to give."""
    free = shutil.disk_usage(folder).free
    if needed_bytes + RESERVED_DISK_BYTES > free:
        raise SpecchatError(
            f"{folder}: the hidden states take {format_megabytes(needed_bytes)}, and {format_megabytes(free)} are free; "
            "make room, choose another --out, or ask less with --most"
        )


def format_megabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:,.1f} MB"


@lru_cache(maxsize=64)
def _open_shard(path: Path) -> safe_open:
    return safe_open(path, framework="pt")
