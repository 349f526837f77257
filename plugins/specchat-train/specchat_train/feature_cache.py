"""The hidden states of the target over its answers, on disk: computed once, read in every epoch.

A shard has the states of some answers: for each, those of the head's layers and after the final norm, side by side, in
bfloat16. Shards are written atomically, so an interrupted cache continues with the missing ones.
"""

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
from specchat_train.distributed import SINGLE_PROCESS, DistributedContext, shared_folder_error
from specchat_train.frozen_target import FrozenTarget
from specchat_train.progress_bar import with_progress_bar
from specchat_train.target_answers import TargetAnswer

MAX_CACHED_TOKENS = 768  # at the end of prompt and answer; training stores whole attention matrices
ANSWERS_IN_SHARD = 32
RESERVED_DISK_BYTES = 256 * 2**20  # left free for other programs
BYTES_PER_VALUE = 2  # bfloat16


@dataclass(frozen=True)
class FeatureCache:
    """The hidden states of these answers at `hidden_state_layers`: those of the head, and FINAL_NORM."""

    folder: Path
    answers: Sequence[TargetAnswer]
    hidden_state_layers: tuple[int, ...]
    hidden_size: int

    @property
    def total_bytes(self) -> int:
        return self._bytes_of(self.answers)

    @property
    def missing_bytes(self) -> int:
        return self._bytes_of([answer for shard in self._missing_shards() for answer in self._shard_answers(shard)])

    def fill(self, target: FrozenTarget, distributed: DistributedContext = SINGLE_PROCESS) -> None:
        """Compute the missing shards, divided among the processes.

        SpecchatError when the disk is too small or full; complete shards stay.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = self._missing_shards()
        check_disk_space(self.missing_bytes, self.folder)
        distributed.barrier()  # all processes must list the missing shards before one is written
        for shard in with_progress_bar(
            "hidden states", distributed.shard(missing), is_shown=distributed.is_main_process
        ):
            answers = enumerate(self._shard_answers(shard), start=shard * ANSWERS_IN_SHARD)
            content = {str(index): self._compute_hidden_states(target, answer) for index, answer in answers}
            self._write(shard, content)
        distributed.barrier()
        if self._missing_shards():
            raise shared_folder_error(self.folder)

    def hidden_states(self, index: int) -> Tensor:
        """The states of one answer, of its last MAX_CACHED_TOKENS tokens. [L, layers * D]"""
        return _open_shard(self._path(index // ANSWERS_IN_SHARD)).get_tensor(str(index))

    def _bytes_of(self, answers: Sequence[TargetAnswer]) -> int:
        positions = sum(len(cached_positions(answer)) for answer in answers)
        return positions * len(self.hidden_state_layers) * self.hidden_size * BYTES_PER_VALUE

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
                f"{path.parent}: the hidden states cannot be written ({error}); complete shards stay: "
                "free some space and start again, or reduce --max-prompts"
            ) from error
        partial.replace(path)

    def _missing_shards(self) -> list[int]:
        return [shard for shard in range(-(-len(self.answers) // ANSWERS_IN_SHARD)) if not self._path(shard).is_file()]

    def _shard_answers(self, shard: int) -> Sequence[TargetAnswer]:
        return self.answers[shard * ANSWERS_IN_SHARD : (shard + 1) * ANSWERS_IN_SHARD]

    def _path(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}.safetensors"


def with_final_norm(hidden_state_layers: tuple[int, ...]) -> tuple[int, ...]:
    """The layers of a head, plus FINAL_NORM, from which the target's logits are computed."""
    return tuple(dict.fromkeys((*hidden_state_layers, FINAL_NORM)))


def cached_positions(answer: TargetAnswer) -> range:
    return range(max(0, len(answer.tokens) - MAX_CACHED_TOKENS), len(answer.tokens))


def check_disk_space(needed_bytes: int, folder: Path) -> None:
    """SpecchatError when the disk has not enough free space."""
    free = shutil.disk_usage(folder).free
    if needed_bytes + RESERVED_DISK_BYTES > free:
        raise SpecchatError(
            f"{folder}: the hidden states take {format_megabytes(needed_bytes)}, and {format_megabytes(free)} are "
            "free; free some space, choose another --out, or reduce --max-prompts"
        )


def format_megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@lru_cache(maxsize=64)
def _open_shard(path: Path) -> safe_open:
    return safe_open(path, framework="pt")
