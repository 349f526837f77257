"""The recurrence of Mamba-2 over a few rows, one after another in float32. Knows tensors and no network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scan:
    """The inputs of the recurrence for N rows. An input or output matrix serves H / G consecutive heads."""

    state: Tensor  # [1, H, size, states], float32
    x: Tensor  # [N, H, size]
    dt: Tensor  # [N, H], step sizes, float32
    rates: Tensor  # [H], float32
    inputs: Tensor  # [N, G, states]
    outputs: Tensor  # [N, G, states]
    skip: Tensor  # [H], float32

    def first(self, rows: int) -> Scan:
        return replace(self, **{name: getattr(self, name)[:rows] for name in ("x", "dt", "inputs", "outputs")})


def step_scan(scan: Scan, *, stores: bool = False) -> Tensor:
    """The output of every row. With `stores`, the state becomes that after the last row. -> [N, H, size]"""
    repeats = scan.x.shape[1] // scan.inputs.shape[1]
    inputs, outputs = (each.float().repeat_interleave(repeats, dim=1) for each in (scan.inputs, scan.outputs))
    x, state, results = scan.x.float(), scan.state[0].float().clone(), list[Tensor]()
    for row in range(len(x)):
        state *= (scan.dt[row] * scan.rates).exp()[:, None, None]
        state.addcmul_(x[row][..., None], (inputs[row] * scan.dt[row][:, None])[:, None])
        results.append(state @ outputs[row][..., None])
    if stores:
        scan.state[0].copy_(state)
    sums = torch.stack(results)[..., 0] + scan.skip[:, None] * x
    return sums.to(scan.x.dtype)
