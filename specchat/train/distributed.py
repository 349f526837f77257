"""Which of several processes this is, and what they share while they train one network: gradients, clock and folder.

`torchrun` starts the same command several times and tells each its number in the environment. Every process trains on
its own share of the batches, gradients are averaged, and the first alone keeps what comes of it. What is decided (the
end, the pace) follows from numbers that all of them have, so no process waits for one that has left. One process is
ALONE: it joins nobody, and all that is here gives back what it was given. Knows no head, no batch and no target.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from specchat.errors import SpecchatError, UsageError

PROCESS_GROUP_TIMEOUT = timedelta(days=1)  # answers of a large target take hours, and they are not equally long

Item = TypeVar("Item")


@dataclass(frozen=True)
class DistributedContext:
    """One of `count` processes; `local` is its number on its own machine, which is that of its card."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_single_process(self) -> bool:
        """Whether there is nobody to share with."""
        return self.world_size == 1

    @property
    def is_main_process(self) -> bool:
        """Whether it keeps files and talks."""
        return self.rank == 0

    def shard(self, items: Sequence[Item]) -> Sequence[Item]:
        """Those of the items that are for this process."""
        return items[self.rank :: self.world_size]

    def batch_index(self, step: int) -> int:
        """Which batch of the plan this process takes in a step: the first `count` go to the first step, and so on."""
        return step * self.world_size + self.rank

    def device(self, requested: str) -> str:
        """Where this process computes: of several on cards, each on its own. UsageError when there are too few."""
        cards = 0 if requested == "cpu" else torch.cuda.device_count()
        if self.is_single_process or not cards:
            return requested
        if self.local_rank >= cards:
            raise UsageError(f"more processes than the {cards} cards of this machine: --nproc-per-node {cards} at most")
        torch.cuda.set_device(self.local_rank)
        return f"cuda:{self.local_rank}"

    @contextmanager
    def process_group(self, device: torch.device) -> Generator[None]:
        """They can talk to each other within: about tensors of this device, and about numbers on the CPU."""
        if self.is_single_process:
            yield
            return
        with _distributed_errors():
            backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
            dist.init_process_group(backend, timeout=PROCESS_GROUP_TIMEOUT, rank=self.rank, world_size=self.world_size)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def barrier(self) -> None:
        """Until all are here."""
        self.all_reduce_sum(0)

    def all_reduce_sum(self, value: int) -> int:
        """The sum of what each of them has."""
        return value if self.is_single_process else int(self._all_reduce(torch.tensor(value)))

    def all_reduce_means(self, values: Mapping[str, float]) -> dict[str, float]:
        """The means of what each of them has under these names."""
        if self.is_single_process:
            return dict(values)
        means = self._all_reduce(torch.tensor(list(values.values()), dtype=torch.float64)) / self.world_size
        return dict(zip(values, means.tolist(), strict=True))

    def broadcast_value(self, value: float) -> float:
        """What the first has."""
        return value if self.is_single_process else float(self._broadcast(torch.tensor(value, dtype=torch.float64)))

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Each gets the mean of the gradients of all; one that has none adds nothing, and nobody's stays none."""
        if self.is_single_process:
            return
        having = self._all_reduce(torch.tensor([parameter.grad is not None for parameter in parameters]).int())
        for parameter, count in zip(parameters, having.tolist(), strict=True):
            if count:
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self._all_reduce(gradient.contiguous()).div_(self.world_size)

    def broadcast_weights(self, network: nn.Module) -> None:
        """Each gets the weights of the first."""
        if not self.is_single_process:
            for tensor in (*network.parameters(), *network.buffers()):
                self._broadcast(tensor.detach())

    def check_same_value(self, number: int, folder: Path) -> None:
        """SpecchatError unless all of them have the same number, read from this folder."""
        if self.broadcast_value(number) != number:
            raise shared_folder_error(folder)

    def _all_reduce(self, tensor: Tensor) -> Tensor:
        with _distributed_errors():
            dist.all_reduce(tensor)
        return tensor

    def _broadcast(self, tensor: Tensor) -> Tensor:
        with _distributed_errors():
            dist.broadcast(tensor, 0)
        return tensor


SINGLE_PROCESS = DistributedContext()


def distributed_context() -> DistributedContext:
    """What torchrun says in the environment, or whoever sets the same variables; ALONE where nobody says anything."""
    said = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    is_said = "MASTER_ADDR" in os.environ and all(word.isdecimal() for word in said)
    return DistributedContext(*map(int, said)) if is_said else SINGLE_PROCESS


def shared_folder_error(path: Path) -> SpecchatError:
    """What is to be said where a process misses what another one made."""
    return SpecchatError(f"{path}: not all processes see the same files there; --out must be on a disk that they share")


@contextmanager
def _distributed_errors() -> Generator[None]:
    """The words of the process that ended say why; the others need not add a page."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        raise SpecchatError("another process of this training ended or cannot be reached; it said why") from error
