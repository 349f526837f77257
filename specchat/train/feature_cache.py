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

from specchat.engine.model import FINAL
from specchat.errors import SpecchatError
from specchat.train.distributed import ALONE, Ranks, unseen
from specchat.train.frozen_target import Target
from specchat.train.progress_bar import each
from specchat.train.target_answers import Answer

LONGEST = 768  # last tokens of an answer and its prompt; the runs of a head keep whole attention matrices
ANSWERS_IN_SHARD = 32
SPARE_BYTES = 256 * 2**20  # of the disk that are left to others
BYTES = 2  # of a bfloat16


@dataclass(frozen=True)
class FeatureCache:
    """The states of these answers; `width` is that of one state. Taps are those of the head and FINAL, once each."""

    folder: Path
    answers: Sequence[Answer]
    taps: tuple[int, ...]
    width: int

    @property
    def bytes(self) -> int:
        """What all shards take."""
        return sum(len(window(answer)) for answer in self.answers) * len(self.taps) * self.width * BYTES

    @property
    def missing_bytes(self) -> int:
        """What those take that are still to be made."""
        missing = [answer for shard in self._missing() for answer in self._members(shard)]
        return sum(len(window(answer)) for answer in missing) * len(self.taps) * self.width * BYTES

    def fill(self, target: Target, ranks: Ranks = ALONE) -> None:
        """Make the shards that are missing, this process its share of them.

        SpecchatError before the disk is full, or when it is; whole ones stay.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = self._missing()
        check_room(self.missing_bytes, self.folder)
        ranks.wait()  # all divide the same list: nobody has made a shard yet
        for shard in each("hidden states", ranks.share(missing), is_shown=ranks.is_first):
            members = enumerate(self._members(shard), start=shard * ANSWERS_IN_SHARD)
            content = {str(index): self._states(target, answer) for index, answer in members}
            self._write(shard, content)
        ranks.wait()
        if self._missing():
            raise unseen(self.folder)

    def states(self, index: int) -> Tensor:
        """Those of one answer, its last LONGEST tokens. [L, taps * D]"""
        return _opened(self._path(index // ANSWERS_IN_SHARD)).get_tensor(str(index))

    def _states(self, target: Target, answer: Answer) -> Tensor:
        states = target.states(answer.tokens, self.taps)[-len(window(answer)) :]
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

    def _missing(self) -> list[int]:
        return [shard for shard in range(-(-len(self.answers) // ANSWERS_IN_SHARD)) if not self._path(shard).is_file()]

    def _members(self, shard: int) -> Sequence[Answer]:
        return self.answers[shard * ANSWERS_IN_SHARD : (shard + 1) * ANSWERS_IN_SHARD]

    def _path(self, shard: int) -> Path:
        return self.folder / f"{shard:05d}.safetensors"


def taps_with_final(taps: tuple[int, ...]) -> tuple[int, ...]:
    """The taps that a cache keeps for a head: its own and FINAL, whose states say what the target would say."""
    return tuple(dict.fromkeys((*taps, FINAL)))


def window(answer: Answer) -> range:
    """The places of an answer with its prompt that are kept."""
    return range(max(0, len(answer.tokens) - LONGEST), len(answer.tokens))


def check_room(needed: int, folder: Path) -> None:
    """SpecchatError where the disk has not so many bytes to give."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise SpecchatError(
            f"{folder}: the hidden states take {megabytes(needed)}, and {megabytes(free)} are free; "
            "make room, choose another --out, or ask less with --most"
        )


def megabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:,.1f} MB"


@lru_cache(maxsize=64)
def _opened(path: Path) -> safe_open:
    return safe_open(path, framework="pt")
