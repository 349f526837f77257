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

PATIENCE = timedelta(days=1)  # answers of a large target take hours, and they are not equally long

Item = TypeVar("Item")


@dataclass(frozen=True)
class Ranks:
    """One of `count` processes; `local` is its number on its own machine, which is that of its card."""

    number: int = 0
    count: int = 1
    local: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to share with."""
        return self.count == 1

    @property
    def is_first(self) -> bool:
        """Whether it keeps files and talks."""
        return self.number == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Those of the items that are for this process."""
        return items[self.number :: self.count]

    def place(self, step: int) -> int:
        """Which batch of the plan this process takes in a step: the first `count` go to the first step, and so on."""
        return step * self.count + self.number

    def device(self, wanted: str) -> str:
        """Where this process computes: of several on cards, each on its own. UsageError when there are too few."""
        cards = 0 if wanted == "cpu" else torch.cuda.device_count()
        if self.is_alone or not cards:
            return wanted
        if self.local >= cards:
            raise UsageError(f"more processes than the {cards} cards of this machine: --nproc-per-node {cards} at most")
        torch.cuda.set_device(self.local)
        return f"cuda:{self.local}"

    @contextmanager
    def joined(self, device: torch.device) -> Generator[None]:
        """They can talk to each other within: about tensors of this device, and about numbers on the CPU."""
        if self.is_alone:
            yield
            return
        with _or_one_line():
            backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
            dist.init_process_group(backend, timeout=PATIENCE, rank=self.number, world_size=self.count)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def wait(self) -> None:
        """Until all are here."""
        self.total(0)

    def total(self, value: int) -> int:
        """The sum of what each of them has."""
        return value if self.is_alone else int(self._summed(torch.tensor(value)))

    def means(self, values: Mapping[str, float]) -> dict[str, float]:
        """The means of what each of them has under these names."""
        if self.is_alone:
            return dict(values)
        means = self._summed(torch.tensor(list(values.values()), dtype=torch.float64)) / self.count
        return dict(zip(values, means.tolist(), strict=True))

    def of_first(self, value: float) -> float:
        """What the first has."""
        return value if self.is_alone else float(self._given(torch.tensor(value, dtype=torch.float64)))

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Each gets the mean of the gradients of all; one that has none adds nothing, and nobody's stays none."""
        if self.is_alone:
            return
        having = self._summed(torch.tensor([parameter.grad is not None for parameter in parameters]).int())
        for parameter, count in zip(parameters, having.tolist(), strict=True):
            if count:
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self._summed(gradient.contiguous()).div_(self.count)

    def make_alike(self, network: nn.Module) -> None:
        """Each gets the weights of the first."""
        if not self.is_alone:
            for tensor in (*network.parameters(), *network.buffers()):
                self._given(tensor.detach())

    def check_alike(self, number: int, folder: Path) -> None:
        """SpecchatError unless all of them have the same number, read from this folder."""
        if self.of_first(number) != number:
            raise unseen(folder)

    def _summed(self, tensor: Tensor) -> Tensor:
        with _or_one_line():
            dist.all_reduce(tensor)
        return tensor

    def _given(self, tensor: Tensor) -> Tensor:
        with _or_one_line():
            dist.broadcast(tensor, 0)
        return tensor


ALONE = Ranks()


def ranks_here() -> Ranks:
    """What torchrun says in the environment, or whoever sets the same variables; ALONE where nobody says anything."""
    said = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    is_said = "MASTER_ADDR" in os.environ and all(word.isdecimal() for word in said)
    return Ranks(*map(int, said)) if is_said else ALONE


def unseen(path: Path) -> SpecchatError:
    """What is to be said where a process misses what another one made."""
    return SpecchatError(f"{path}: not all processes see the same files there; --out must be on a disk that they share")


@contextmanager
def _or_one_line() -> Generator[None]:
    """The words of the process that ended say why; the others need not add a page."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        raise SpecchatError("another process of this training ended or cannot be reached; it said why") from error
