"""The recurrences of hybrid networks: the gated delta rule and its short convolution.

Each steps over rows in order, by a native kernel for the dtypes that there is one for, else by torch. The rows of a
delta rule and of a convolution may be the nodes of a tree. States are float32 and change only on request. Knows
tensors; knows no network.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from specchat.forward.linear.linear import TOLERANCE, sample_tensor
from specchat.forward.native.native_ops import DTYPE_NAMES, Kernel, check_border, data_pointer, native_kernels

log = logging.getLogger(__name__)

CPU = torch.device("cpu")
NORM_EPSILON = 1e-6  # as in native_recurrent.cpp
SINGLE_THREAD_NUMBERS = 2**17  # of a state times rows: more are shared out to all threads
KERNELS = ("gated_delta", "delta_gates", "gated_rms_norm", "convolution")


@dataclass(frozen=True)
class DeltaRule:
    """The inputs of a gated delta rule for N rows. A query or key serves H / G consecutive heads."""

    state: Tensor  # [1, H, keys, values], float32
    query: Tensor  # [N, G, keys]
    key: Tensor  # [N, G, keys]
    value: Tensor  # [N, H, values]
    decay: Tensor  # [N, H, 1 or keys], logarithms, float32
    beta: Tensor  # [N, H], float32
    parents: Tensor | None = None  # int64 [N], of the nodes of a tree, -1 for a root; None: each row follows the last

    def along(self, path: Sequence[int]) -> DeltaRule:
        """The chain of these rows."""
        names = ("query", "key", "value", "decay", "beta")
        return replace(self, parents=None, **{name: select_rows(getattr(self, name), path) for name in names})


@dataclass(frozen=True)
class DeltaGates:
    """The gates of a delta rule: decay = -rate * softplus(a + bias), beta = sigmoid(b)."""

    rates: Tensor  # [H], float32, negative
    biases: Tensor  # [H], float32


@dataclass(frozen=True)
class Convolution:
    """A causal convolution of each channel: that of a row is over the rows of its window, oldest first."""

    x: Tensor  # [rows, C]
    windows: Tensor  # int64 [N, kernel]
    weight: Tensor  # [kernel, C]
    bias: Tensor | None  # [C]
    has_silu: bool


def select_rows(rows: Tensor, path: Sequence[int]) -> Tensor:
    """These rows; those of a path without gaps are not copied."""
    is_prefix = all(index == node for index, node in enumerate(path))
    return rows[: len(path)] if is_prefix else rows[list(path)]


def step_delta_rule(rule: DeltaRule, *, into: Tensor | None = None) -> Tensor:
    """The output of every row; the state after the last row goes `into` a tensor, if given. -> [N, H, values]"""
    if (kernel := _kernel("gated_delta", rule.value, rule.state)) is None:
        return delta_rule_by_torch(rule, into)
    (rows, heads, values), (_, key_heads, keys), decays = rule.value.shape, rule.key.shape, rule.decay.shape[-1]
    query, key, value = (each.contiguous() for each in (rule.query, rule.key, rule.value))
    decay, beta, out = rule.decay.contiguous(), rule.beta.contiguous(), torch.empty_like(value)
    key_shape, state_shape = (rows, key_heads, keys), (1, heads, keys, values)
    check_border("gated_delta", value, (query, key_shape), (key, key_shape))
    numbers = (decay, (rows, heads, decays)), (beta, (rows, heads))
    after = rule.state if into is None else into
    check_border("gated_delta", rule.state, (rule.state, state_shape), (after, state_shape), *numbers)
    tensors = map(data_pointer, (rule.state, query, key, value, decay, beta, rule.parents, out, into))
    threads = torch.get_num_threads() if rows * rule.state.numel() > SINGLE_THREAD_NUMBERS else 1
    kernel(*tensors, rows, heads, key_heads, keys, values, decays, threads)
    return out


def delta_gates(projected: Tensor, gates: DeltaGates) -> tuple[Tensor, Tensor]:
    """Decay and beta of every row and head, of their projections b and a. [N, 2 H] -> two float32 [N, H]"""
    if (kernel := _kernel("delta_gates", projected)) is None:
        return delta_gates_by_torch(projected, gates)
    projected, rows, heads = projected.contiguous(), len(projected), len(gates.rates)
    check_border("delta_gates", projected, (projected, (rows, 2 * heads)))
    check_border("delta_gates", gates.rates, (gates.rates, (heads,)), (gates.biases, (heads,)))
    decay, beta = gates.rates.new_empty(rows, heads), gates.rates.new_empty(rows, heads)
    kernel(*map(data_pointer, (projected, gates.rates, gates.biases, decay, beta)), rows, heads)
    return decay, beta


def gated_rms_norm(rows: Tensor, gates: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm over the last dimension, times silu of the gates. [..., size] -> [..., size]"""
    if (kernel := _kernel("gated_rms_norm", rows)) is None:
        return gated_rms_norm_by_torch(rows, gates, weight, epsilon)
    rows, gates, size = rows.contiguous(), gates.contiguous(), rows.shape[-1]
    check_border("gated_rms_norm", rows, (gates, rows.shape), (weight, (size,)))
    out = torch.empty_like(rows)
    kernel(*map(data_pointer, (rows, gates, weight, out)), rows.numel() // size, size, epsilon)
    return out


def convolve(convolution: Convolution) -> Tensor:
    """The sums of all windows. -> [N, C]"""
    x, weight, bias, windows = convolution.x, convolution.weight, convolution.bias, convolution.windows
    if x.dtype != weight.dtype or (kernel := _kernel("convolution", x)) is None:
        return convolution_by_torch(convolution)
    x, weight, channels, (rows, width) = x.contiguous(), weight.contiguous(), x.shape[-1], windows.shape
    check_border("convolution", x, (weight, (width, channels)), (bias, (channels,)))
    out = x.new_empty(rows, channels)
    tensors = map(data_pointer, (x, windows, weight, bias, out))
    kernel(*tensors, rows, channels, width, int(convolution.has_silu))
    return out


def delta_rule_by_torch(rule: DeltaRule, into: Tensor | None = None) -> Tensor:
    repeats = rule.value.shape[1] // rule.key.shape[1]
    scale = lambda rows: torch.rsqrt((rows * rows).sum(dim=-1, keepdim=True) + NORM_EPSILON)
    query, key = (each.float() for each in (rule.query, rule.key))
    query, key = ((each * scale(each)).repeat_interleave(repeats, dim=1) for each in (query, key))
    query, value = query * query.shape[-1] ** -0.5, rule.value.float()
    parents: list[int] = list(range(-1, len(value) - 1)) if rule.parents is None else rule.parents.tolist()
    states, outputs = [rule.state[0].float()], list[Tensor]()
    for row, parent in enumerate(parents):
        state = states[parent + 1] * rule.decay[row].exp()[..., None]
        known = (state * key[row][..., None]).sum(dim=-2)
        change = (value[row] - known) * rule.beta[row][:, None]
        states.append(state + key[row][..., None] * change[:, None])
        outputs.append((states[-1] * query[row][..., None]).sum(dim=-2))
        if rule.parents is None:
            states[row] = state  # no later row needs it
    if into is not None:
        into[0].copy_(states[-1])
    return torch.stack(outputs).to(rule.value.dtype)


def delta_gates_by_torch(projected: Tensor, gates: DeltaGates) -> tuple[Tensor, Tensor]:
    beta, steps = projected.chunk(2, dim=-1)
    return gates.rates * functional.softplus(steps.float() + gates.biases), beta.sigmoid().float()


def gated_rms_norm_by_torch(rows: Tensor, gates: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    normed = functional.rms_norm(rows.float(), weight.shape, weight.float(), epsilon)
    return (normed * functional.silu(gates.float())).to(rows.dtype)


def convolution_by_torch(convolution: Convolution) -> Tensor:
    weight, bias = convolution.weight, convolution.bias
    out = (convolution.x.to(weight.dtype)[convolution.windows].float() * weight.float()).sum(dim=1)
    out = (out if bias is None else out + bias.float()).to(weight.dtype)
    return (functional.silu(out) if convolution.has_silu else out).to(convolution.x.dtype)


def _kernel(name: str, rows: Tensor, state: Tensor | None = None) -> Kernel | None:
    """The native kernel for these rows; None where torch has to compute them."""
    has_state = state is None or (state.dtype == torch.float32 and state.is_contiguous())
    if rows.device != CPU or not has_state or rows.dtype not in DTYPE_NAMES:
        return None
    return native_recurrences(rows.dtype).get(name)


def native_recurrences(dtype: torch.dtype) -> Mapping[str, Kernel]:
    """The kernels by name; none where there is no compiler, or where they do not give what torch gives."""
    if dtype not in _kernels_by_dtype:
        found = {name: native_kernels().kernel(name, dtype) for name in KERNELS}
        # there before they are compared, because that calls them
        _kernels_by_dtype[dtype] = {name: kernel for name, kernel in found.items() if kernel is not None}
        if _kernels_by_dtype[dtype] and not _match_torch(dtype):
            log.warning("the native kernels of recurrences give other results than torch, and are not used")
            _kernels_by_dtype[dtype] = {}
    return _kernels_by_dtype[dtype]


@torch.inference_mode()
def _match_torch(dtype: torch.dtype) -> bool:
    """Whether a few rows, and the states after them, are those of torch."""
    numbers, wide, tolerance = sample_tensor(dtype, 4, 2, 40), sample_tensor(torch.float32, 4, 2, 40), TOLERANCE[dtype]
    state, parents = wide[:3].reshape(1, 2, 3, 40), torch.tensor([-1, 0, 0, 2])
    decay, beta = -wide[..., :1].abs(), wide[..., 0]
    rule = DeltaRule(state.clone(), numbers[..., :3], numbers[..., 3:6], numbers, decay, beta, parents)
    other_rule = replace(rule, state=state.clone())
    pairs = [(step_delta_rule(rule, into=rule.state), delta_rule_by_torch(other_rule, other_rule.state))]
    gates, projected = DeltaGates(-wide[0, 0].abs(), wide[0, 1]), numbers.flatten(1)
    pairs += zip(delta_gates(projected, gates), delta_gates_by_torch(projected, gates), strict=True)
    norm = numbers, 3 * numbers, numbers[0, 0], NORM_EPSILON
    pairs.append((gated_rms_norm(*norm), gated_rms_norm_by_torch(*norm)))
    convolution = Convolution(numbers[:, 0], torch.tensor([[0, 1, 2], [1, 3, 2]]), numbers[:3, 1], None, True)
    pairs.append((convolve(convolution), convolution_by_torch(convolution)))
    pairs.append((rule.state, other_rule.state))
    return all(torch.allclose(ours, theirs, tolerance, tolerance) for ours, theirs in pairs)


_kernels_by_dtype: dict[torch.dtype, Mapping[str, Kernel]] = {}
