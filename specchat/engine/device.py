"""Copies from the host to the device that do not wait for the device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def copy_to_device(values: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    """Copy integers to a tensor on the device, queued after the work that is already there.

    `torch.tensor(…, device="cuda")` waits until the device is idle. A non-blocking copy does not wait, and it is safe
    from pageable memory, because the driver has read that memory when the call returns.
    """
    tensor = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.long)
    return tensor.to(device, non_blocking=True)
