"""Data-parallel training in several processes under `torchrun`, which sets the rank in the environment.

Every process trains on its share of the batches, gradients are averaged, and rank 0 alone writes results. The end of
training and the learning rates follow from values that all processes have, so that they leave the loop together. With
SINGLE_PROCESS, every method returns its input. Knows no head, no batch and no target.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from specchat.devices import default_device, device_count, kind_of, resolve_device, select
from specchat.errors import SpecchatError, UsageError

PROCESS_GROUP_TIMEOUT = timedelta(days=1)  # generating answers can take hours longer in one process

Item = TypeVar("Item")


@dataclass(frozen=True)
class DistributedContext:
    """One of `world_size` processes; `local_rank` is its index on its machine, and that of its GPU."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_single_process(self) -> bool:
        return self.world_size == 1

    @property
    def is_main_process(self) -> bool:
        return self.rank == 0

    def shard(self, items: Sequence[Item]) -> Sequence[Item]:
        return items[self.rank :: self.world_size]

    def batch_index(self, step: int) -> int:
        """The batch of the plan for this process in a step; a step takes `world_size` batches."""
        return step * self.world_size + self.rank

    def device(self, requested: str) -> str:
        """The device of this process: one GPU per process. UsageError when there are too few GPUs."""
        kind = kind_of(resolve_device(requested, default=default_device()))
        gpus = device_count(kind)
        if self.is_single_process or not gpus:
            return requested
        if self.local_rank >= gpus:
            raise UsageError(f"more processes than the {gpus} GPUs of this machine: --nproc-per-node {gpus} at most")
        device = f"{kind.name}:{self.local_rank}"
        select(device)
        return device

    @contextmanager
    def process_group(self, device: torch.device) -> Generator[None]:
        """Connect the processes inside the block: with NCCL for tensors of a GPU that has it, gloo for others."""
        if self.is_single_process:
            yield
            return
        import_module("torch.distributed.nn.functional")  # later, its default arguments would keep the group for ever
        with _distributed_errors():
            backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:{kind_of(device).collective_backend}"
            dist.init_process_group(backend, timeout=PROCESS_GROUP_TIMEOUT, rank=self.rank, world_size=self.world_size)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def barrier(self) -> None:
        self.all_reduce_sum(0)

    def all_reduce_sum(self, value: int) -> int:
        return value if self.is_single_process else int(self._all_reduce(torch.tensor(value)))

    def all_reduce_means(self, values: Mapping[str, float]) -> dict[str, float]:
        if self.is_single_process:
            return dict(values)
        means = self._all_reduce(torch.tensor(list(values.values()), dtype=torch.float64)) / self.world_size
        return dict(zip(values, means.tolist(), strict=True))

    def broadcast_value(self, value: float) -> float:
        """The value of rank 0."""
        return value if self.is_single_process else float(self._broadcast(torch.tensor(value, dtype=torch.float64)))

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average gradients over all processes; a missing gradient counts as 0, or stays None when all are missing."""
        if self.is_single_process:
            return
        counts = self._all_reduce(torch.tensor([parameter.grad is not None for parameter in parameters]).int())
        for parameter, count in zip(parameters, counts.tolist(), strict=True):
            if count:
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self._all_reduce(gradient.contiguous()).div_(self.world_size)

    def broadcast_weights(self, network: nn.Module) -> None:
        """Copy the weights of rank 0 to all processes."""
        if not self.is_single_process:
            for tensor in (*network.parameters(), *network.buffers()):
                self._broadcast(tensor.detach())

    def check_same_value(self, value: int, folder: Path) -> None:
        """SpecchatError unless all processes read the same value from this folder."""
        if self.broadcast_value(value) != value:
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
    """Read the variables of torchrun or accelerate; SINGLE_PROCESS without them."""
    values = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    is_distributed = "MASTER_ADDR" in os.environ and all(value.isdecimal() for value in values)
    return DistributedContext(*map(int, values)) if is_distributed else SINGLE_PROCESS


def shared_folder_error(path: Path) -> SpecchatError:
    return SpecchatError(f"{path}: the processes see different files; --out must be on a shared disk")


@contextmanager
def _distributed_errors() -> Generator[None]:
    """One line instead of a traceback: the process that failed first reports the reason."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        raise SpecchatError("another training process ended or cannot be reached; see its message") from error
