"""Numbers go to the device without anybody waiting for it. Knows devices, and nothing of what the numbers mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def copy_to_device(values: Sequence[int] | Tensor, device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Whole numbers as a tensor on the device, behind the work that is queued there.

    `torch.tensor(…, device="cuda")` waits until the device has nothing left to do; a copy that need not be waited for
    does not, and is safe from ordinary memory, which the driver has read when it returns.
    """
    tensor = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    return tensor.to(device, non_blocking=True)
