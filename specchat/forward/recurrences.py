"""The recurrences of hybrid networks: the gated delta rule, the scan of Mamba-2, and their short convolution.

Each steps over rows in order, by a native kernel for the dtypes that there is one for, else by torch. States are
float32 and change only on request. Knows tensors; knows no network.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.linear import TOLERANCE, sample_tensor
from specchat.forward.native_ops import DTYPE_NAMES, Kernel, check_border, data_pointer, native_kernels

log = logging.getLogger(__name__)

CPU = torch.device("cpu")
NORM_EPSILON = 1e-6  # as in native_recurrent.cpp
SINGLE_THREAD_NUMBERS = 2**17  # of a state times rows: more are shared out to all threads
KERNELS = ("gated_delta", "mamba2_scan", "convolution")


@dataclass(frozen=True)
class DeltaRule:
    """The inputs of a gated delta rule for N rows. A query or key serves H / G consecutive heads."""

    state: Tensor  # [1, H, keys, values], float32
    query: Tensor  # [N, G, keys]
    key: Tensor  # [N, G, keys]
    value: Tensor  # [N, H, values]
    decay: Tensor  # [N, H, 1 or keys], logarithms, float32
    beta: Tensor  # [N, H], float32

    def first(self, rows: int) -> DeltaRule:
        names = ("query", "key", "value", "decay", "beta")
        return replace(self, **{name: getattr(self, name)[:rows] for name in names})


@dataclass(frozen=True)
class Scan:
    """The inputs of Mamba-2's recurrence for N rows. An input or output matrix serves H / G consecutive heads."""

    state: Tensor  # [1, H, size, states], float32
    x: Tensor  # [N, H, size]
    dt: Tensor  # [N, H], step sizes, float32
    rates: Tensor  # [H], float32
    inputs: Tensor  # [N, G, states]
    outputs: Tensor  # [N, G, states]
    skip: Tensor  # [H], float32

    def first(self, rows: int) -> Scan:
        return replace(self, **{name: getattr(self, name)[:rows] for name in ("x", "dt", "inputs", "outputs")})


@dataclass(frozen=True)
class Convolution:
    """A causal convolution of each channel."""

    x: Tensor  # [C, columns]
    weight: Tensor  # [C, kernel]
    bias: Tensor | None  # [C]
    has_silu: bool


def step_delta_rule(rule: DeltaRule, *, stores: bool = False) -> Tensor:
    """The output of every row. With `stores`, the state becomes that after the last row. -> [N, H, values]"""
    kernel = _kernel("gated_delta", rule.state, rule.value)
    return delta_rule_by_torch(rule, stores) if kernel is None else _delta_rule_by_kernel(kernel, rule, stores)


def step_scan(scan: Scan, *, stores: bool = False) -> Tensor:
    """The output of every row. With `stores`, the state becomes that after the last row. -> [N, H, size]"""
    kernel = _kernel("mamba2_scan", scan.state, scan.x)
    return scan_by_torch(scan, stores) if kernel is None else _scan_by_kernel(kernel, scan, stores)


def convolve(convolution: Convolution, rows: int) -> Tensor:
    """The last `rows` columns. -> [1, C, rows]"""
    kernel = _kernel("convolution", None, convolution.x) if convolution.x.dtype == convolution.weight.dtype else None
    return convolution_by_torch(convolution, rows) if kernel is None else _convolve_by_kernel(kernel, convolution, rows)


def _delta_rule_by_kernel(kernel: Kernel, rule: DeltaRule, stores: bool) -> Tensor:
    (rows, heads, values), (_, key_heads, keys), decays = rule.value.shape, rule.key.shape, rule.decay.shape[-1]
    query, key, value = (each.contiguous() for each in (rule.query, rule.key, rule.value))
    decay, beta, out = rule.decay.contiguous(), rule.beta.contiguous(), torch.empty_like(value)
    check_border("gated_delta", value, (query, (rows, key_heads, keys)), (key, (rows, key_heads, keys)))
    check_border(
        "gated_delta", rule.state,
        (rule.state, (1, heads, keys, values)), (decay, (rows, heads, decays)), (beta, (rows, heads)),
    )  # fmt: skip
    pointers = (data_pointer(each) for each in (rule.state, query, key, value, decay, beta, out))
    kernel(*pointers, rows, heads, key_heads, keys, values, decays, int(stores), _threads(rows, rule.state))
    return out


def _scan_by_kernel(kernel: Kernel, scan: Scan, stores: bool) -> Tensor:
    (rows, heads, size), (_, groups, states) = scan.x.shape, scan.inputs.shape
    x, inputs, outputs = (each.contiguous() for each in (scan.x, scan.inputs, scan.outputs))
    dt, rates, skip, out = scan.dt.contiguous(), scan.rates.contiguous(), scan.skip.contiguous(), torch.empty_like(x)
    check_border("mamba2_scan", x, (inputs, (rows, groups, states)), (outputs, (rows, groups, states)))
    check_border(
        "mamba2_scan", scan.state,
        (scan.state, (1, heads, size, states)), (dt, (rows, heads)), (rates, (heads,)), (skip, (heads,)),
    )  # fmt: skip
    pointers = (data_pointer(each) for each in (scan.state, x, dt, rates, inputs, outputs, skip, out))
    kernel(*pointers, rows, heads, groups, size, states, int(stores), _threads(rows, scan.state))
    return out


def _convolve_by_kernel(kernel: Kernel, convolution: Convolution, rows: int) -> Tensor:
    x, weight, bias = convolution.x.contiguous(), convolution.weight.contiguous(), convolution.bias
    (channels, columns), width = x.shape, weight.shape[-1]
    columns_needed = max(columns, rows + width - 1)
    check_border("convolution", x, (x, (channels, columns_needed)), (weight, (channels, width)))
    if bias is not None:
        check_border("convolution", x, (bias, (channels,)))
    out = x.new_empty(rows, channels)
    pointers = (data_pointer(each) for each in (x, weight, bias, out))
    kernel(*pointers, rows, channels, columns, width, int(convolution.has_silu))
    return out.T[None]


def delta_rule_by_torch(rule: DeltaRule, stores: bool = False) -> Tensor:
    repeats = rule.value.shape[1] // rule.key.shape[1]
    query, key = (_normalized(each).repeat_interleave(repeats, dim=1) for each in (rule.query, rule.key))
    query, value = query * query.shape[-1] ** -0.5, rule.value.float()
    state, outputs = rule.state[0].float(), list[Tensor]()
    for row in range(len(value)):
        state = state * rule.decay[row].exp()[..., None]
        known = (state * key[row][..., None]).sum(dim=-2)
        change = (value[row] - known) * rule.beta[row][:, None]
        state = state + key[row][..., None] * change[:, None]
        outputs.append((state * query[row][..., None]).sum(dim=-2))
    if stores:
        rule.state[0].copy_(state)
    return torch.stack(outputs).to(rule.value.dtype)


def scan_by_torch(scan: Scan, stores: bool = False) -> Tensor:
    repeats = scan.x.shape[1] // scan.inputs.shape[1]
    inputs, outputs = (each.float().repeat_interleave(repeats, dim=1) for each in (scan.inputs, scan.outputs))
    x, state, results = scan.x.float(), scan.state[0].float(), list[Tensor]()
    for row in range(len(x)):
        factor = (scan.dt[row] * scan.rates).exp()[:, None, None]
        state = state * factor + (inputs[row] * scan.dt[row][:, None])[:, None] * x[row][..., None]
        results.append((state * outputs[row][:, None]).sum(dim=-1) + scan.skip[:, None] * x[row])
    if stores:
        scan.state[0].copy_(state)
    return torch.stack(results).to(scan.x.dtype)


def convolution_by_torch(convolution: Convolution, rows: int) -> Tensor:
    weight, width = convolution.weight, convolution.weight.shape[-1]
    x = convolution.x[:, -(rows + width - 1) :].to(weight.dtype)[None]
    out = functional.conv1d(x, weight[:, None], convolution.bias, groups=len(weight))
    return (functional.silu(out) if convolution.has_silu else out).to(convolution.x.dtype)


def _normalized(rows: Tensor) -> Tensor:
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(dim=-1, keepdim=True) + NORM_EPSILON)


def _threads(rows: int, state: Tensor) -> int:
    return torch.get_num_threads() if rows * state.numel() > SINGLE_THREAD_NUMBERS else 1


def _kernel(name: str, state: Tensor | None, rows: Tensor) -> Kernel | None:
    """The native kernel for these rows; None where torch has to compute them."""
    has_state = state is None or (state.dtype == torch.float32 and state.is_contiguous())
    if rows.device != CPU or not has_state or rows.dtype not in DTYPE_NAMES:
        return None
    return native_recurrences(rows.dtype).get(name)


@lru_cache
def native_recurrences(dtype: torch.dtype) -> dict[str, Kernel]:
    """The kernels by name; none where there is no compiler, or where they do not give what torch gives."""
    found = {name: native_kernels().kernel(name, dtype) for name in KERNELS}
    kernels = {name: kernel for name, kernel in found.items() if kernel is not None}
    if kernels and not _match_torch(kernels, dtype):
        log.warning("the native kernels of recurrences give other results than torch, and are not used")
        return {}
    return kernels


@torch.inference_mode()
def _match_torch(kernels: dict[str, Kernel], dtype: torch.dtype) -> bool:
    """Whether a few rows, and the states after them, are those of torch."""
    numbers, wide, tolerance = sample_tensor(dtype, 4, 2, 40), sample_tensor(torch.float32, 4, 2, 40), TOLERANCE[dtype]
    pairs: list[tuple[Tensor, Tensor]] = []
    state = wide[:3].reshape(1, 2, 3, 40)
    rule = DeltaRule(state.clone(), numbers[..., :3], numbers[..., 3:6], numbers, -wide[..., :1].abs(), wide[..., 0])
    other = replace(rule, state=state.clone())
    pairs += [(_delta_rule_by_kernel(kernels["gated_delta"], rule, True), delta_rule_by_torch(other, True))]
    scan = Scan(
        state.clone(), numbers[..., :3], wide[..., 0].abs(), -wide[0, :, 0].abs(), numbers, numbers, wide[0, :, 1]
    )
    other_scan = replace(scan, state=state.clone())
    pairs += [(_scan_by_kernel(kernels["mamba2_scan"], scan, True), scan_by_torch(other_scan, True))]
    convolution = Convolution(numbers[0], numbers[1, :, :3], None, True)
    pairs += [(_convolve_by_kernel(kernels["convolution"], convolution, 5), convolution_by_torch(convolution, 5))]
    pairs += [(rule.state, other.state), (scan.state, other_scan.state)]
    return all(torch.allclose(ours, theirs, tolerance, tolerance) for ours, theirs in pairs)
