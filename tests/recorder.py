"""Simulates a CUDA graph on any device: runs the kernels of a pass again on the same addresses.

Python is not run again, so a number that a pass took from Python keeps its captured value, as on a GPU. Operations
that a GPU cannot capture are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.nested import tree_leaves

Call = tuple[Callable[..., Any], Any, Any, Any]  # a kernel, its arguments and its results
REFUSED = ("_local_scalar_dense", "lift_fresh")  # synchronization and copies from the host, during capture


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(name in str(func) for name in REFUSED), f"{func} cannot be recorded"
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


def recorded(run: Callable[[], None]) -> Callable[[], None]:
    """Run a pass, and return a function that runs its kernels again."""
    recorder = _Recorder()
    with recorder:
        run()

    return partial(replay_calls, recorder.calls)


@torch.inference_mode()
def replay_calls(calls: Sequence[Call]) -> None:
    """Run kernels again, with the results of the first run as their addresses."""
    for func, args, kwargs, out in calls:
        again = func(*args, **kwargs)
        for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
            if isinstance(old, torch.Tensor) and not old.is_meta and old.data_ptr() != new.data_ptr():
                old.copy_(new)
