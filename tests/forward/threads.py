"""The same computation with several numbers of threads."""

from collections.abc import Callable

import torch
from torch import Tensor


def with_threads(compute: Callable[[], Tensor]) -> list[Tensor]:
    """Its results with one, two and three threads of torch."""
    before, results = torch.get_num_threads(), list[Tensor]()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(compute())
    finally:
        torch.set_num_threads(before)
    return results
