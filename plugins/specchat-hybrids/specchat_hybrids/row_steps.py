"""The recurrences of hybrid networks over a few rows, without changing their states until rows are committed.

transformers computes several rows in chunks of 64 and changes the states of the layers. During a pass of ours, the
functions below take the place of its own: they step over the rows one after another, leave the states as they were and
record their inputs. Only the rows that are committed are applied to the states, without any weights, so a rejected
draft token costs the next pass nothing.

Families of transformers have copies of the same functions, by the same names, in their own modules. A caller has to
check that all states of a network are on record (`RecordedRows.covers`). Knows functions of transformers and no text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specchat.forward.recurrences import Convolution, DeltaRule, convolve, step_delta_rule
from specchat_hybrids.scan import Scan, step_scan

SILU = ("silu", "swish")
NO_LIMITS = (0.0, float("inf"))
Original = Callable[..., Any]


@dataclass
class RecordedRows:
    """The inputs of all recurrences of one pass."""

    rows: int
    step_limits: tuple[float, float] = NO_LIMITS  # of Mamba-2's step sizes
    delta_rules: list[DeltaRule] = field(default_factory=list[DeltaRule])
    scans: list[Scan] = field(default_factory=list[Scan])
    columns: list[tuple[Tensor, Tensor]] = field(
        default_factory=list[tuple[Tensor, Tensor]]
    )  # a state, and what follows

    def commit(self, cache: Any, rows: int) -> None:
        """Apply the first rows to the states, and remove the others from everything that the pass has extended."""
        if rows:
            for each in self.delta_rules:
                step_delta_rule(each.along(range(rows)), into=each.state)
            for each in self.scans:
                step_scan(each.first(rows), stores=True)
        for layer in cache.layers:
            self._extend_conv_states(layer)
        cache.crop(rows - self.rows)

    def covers(self, cache: Any) -> bool:
        """Whether the state of every recurrent layer is recorded."""
        recorded = {id(each.state) for each in (*self.delta_rules, *self.scans)}
        states = [each for layer in cache.layers for each in getattr(layer, "recurrent_states", {}).values()]
        return all(id(state) in recorded for state in states if state is not None)

    def _extend_conv_states(self, layer: Any) -> None:
        """As transformers does while a cache records its past; some families do not in a pass over one row."""
        for index, state in getattr(layer, "conv_states", {}).items():
            for recorded, columns in self.columns:
                if recorded is state:
                    layer.conv_states[index] = torch.cat([state, columns], dim=-1)


class SteppedNetwork:
    """Puts our functions into the modules of a network of transformers, during a pass only."""

    def __init__(self, network: nn.Module) -> None:
        names = {type(module).__module__ for module in network.modules()}
        self._modules = [sys.modules[name] for name in sorted(names) if name.startswith("transformers.models.")]
        found: list[Any] = [vars(module).get("time_step_limit") for module in network.modules()]
        limits = {(float(each[0]), float(each[1])) for each in found if each is not None}
        self._step_limits = limits.pop() if len(limits) == 1 else NO_LIMITS

    @contextmanager
    def recording(self, rows: int) -> Generator[RecordedRows]:
        """Within it, a pass over so many rows of a text is stepped and recorded."""
        recorded = RecordedRows(rows, self._step_limits)
        replaced: list[tuple[Any, str, Original]] = []
        try:
            for module in self._modules:
                for name, function in REPLACEMENTS.items():
                    if (original := getattr(module, name, None)) is not None:
                        replaced.append((module, name, original))
                        setattr(module, name, partial(function, recorded, original))
            yield recorded
        finally:
            for module, name, original in replaced:
                setattr(module, name, original)


def _delta_rule(
    recorded: RecordedRows, original: Original, query: Tensor, key: Tensor, value: Tensor, **arguments: Any
) -> tuple[Tensor, Tensor | None]:
    """Gated delta rule; with one decay for each key, Kimi's delta attention. query, key, value: [1, N, H, size]"""
    state = arguments.get("initial_state")
    if state is None or not arguments.get("use_qk_l2norm_in_kernel"):
        return original(query, key, value, **arguments)
    decay, beta = arguments["g"][0].float(), arguments["beta"][0].float()
    rule = DeltaRule(state, query[0], key[0], value[0], decay if decay.dim() == 3 else decay[..., None], beta)
    recorded.delta_rules.append(rule)
    return step_delta_rule(rule)[None], state


def _scan(
    recorded: RecordedRows, original: Original, x: Tensor, dt: Tensor, rates: Tensor, inputs: Tensor, outputs: Tensor,
    **arguments: Any,
) -> Any:  # fmt: skip
    """Mamba-2 over several rows. x: [1, N, H, size], dt: [1, N, H], inputs and outputs: [1, N, G, states]"""
    state, skip = arguments.get("initial_states"), arguments.get("D")
    has_other_limits = tuple(arguments.get("dt_limit", NO_LIMITS)) != recorded.step_limits
    if state is None or skip is None or has_other_limits or arguments.get("z") is not None:
        return original(x, dt, rates, inputs, outputs, **arguments)
    scan = Scan(
        state, x[0], _step_sizes(recorded, dt[0], arguments), rates.float(), inputs[0], outputs[0], skip.float()
    )
    recorded.scans.append(scan)
    output = step_scan(scan)[None]
    return (output, state) if arguments.get("return_final_states") else output


def _scan_one_row(
    recorded: RecordedRows, original: Original, state: Tensor, x: Tensor, dt: Tensor, rates: Tensor, inputs: Tensor,
    outputs: Tensor, skip: Tensor | None = None, **arguments: Any,
) -> Tensor:  # fmt: skip
    """Mamba-2 over one row. x: [1, H, size], dt: [1, H, size], inputs and outputs: [1, G, states]

    Step sizes, rates [H, size, states] and skip [H, size] have one number for a head, expanded. transformers gives no
    limits of step sizes here, and computes a token otherwise than in a whole pass.
    """
    if skip is None:
        return original(state, x, dt, rates, inputs, outputs, **arguments)
    of_heads = {name: value[..., 0] if isinstance(value, Tensor) else value for name, value in arguments.items()}
    step_sizes = _step_sizes(recorded, dt[..., 0], of_heads)
    scan = Scan(state, x, step_sizes, rates[:, 0, 0].float(), inputs, outputs, skip[:, 0].float())
    recorded.scans.append(scan)
    output, gate = step_scan(scan), arguments.get("z")
    return output if gate is None else output * functional.silu(gate)


def _step_sizes(recorded: RecordedRows, dt: Tensor, arguments: dict[str, Any]) -> Tensor:
    bias = arguments.get("dt_bias")
    dt = dt if bias is None else dt + bias.to(dt.dtype)
    dt = functional.softplus(dt) if arguments.get("dt_softplus") else dt
    return dt.clamp(*recorded.step_limits).float()


def _convolve_after_state(
    recorded: RecordedRows, original: Original, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    activation: str | None = None, **arguments: Any,
) -> Tensor:  # fmt: skip
    """The last rows of a convolution over its state and the rows of the pass. [1, C, columns] -> [1, C, N]"""
    is_known = activation is None or activation in SILU
    if not is_known or x.shape[-1] < recorded.rows + weight.shape[-1] - 1:
        return original(x, weight, bias, activation=activation, **arguments)
    return _convolve_columns(x, weight, bias, recorded.rows, has_silu=activation is not None)


def _convolve_one_row(
    recorded: RecordedRows, original: Original, x: Tensor, conv_state: Tensor, weight: Tensor,
    bias: Tensor | None = None, activation: str | None = None,
) -> Tensor:  # fmt: skip
    recorded.columns.append((conv_state, x))
    columns = torch.cat([conv_state, x.to(conv_state.dtype)], dim=-1)
    if activation is None or activation in SILU:
        return _convolve_columns(columns, weight, bias, x.shape[-1], has_silu=activation is not None)
    return original(x, conv_state.clone(), weight, bias, activation)


def _convolve_columns(x: Tensor, weight: Tensor, bias: Tensor | None, rows: int, *, has_silu: bool) -> Tensor:
    """The last `rows` sums of a convolution in the layout of transformers. x [1, C, columns], weight [C, kernel]"""
    width = weight.shape[-1]
    windows = torch.arange(rows)[:, None] + torch.arange(width)
    recent = x[0, :, -(rows + width - 1) :].T.contiguous()
    return convolve(Convolution(recent, windows, weight.T, bias, has_silu)).T[None]


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "torch_chunk_gated_delta_rule": _delta_rule,
    "torch_recurrent_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "recurrent_kimi_delta_attention": _delta_rule,
    "mamba2_chunk_scan": _scan,
    "mamba2_selective_state_update": _scan_one_row,
    "causal_conv1d_fn": _convolve_after_state,
    "causal_conv1d_update": _convolve_one_row,
}
