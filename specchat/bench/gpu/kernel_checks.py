"""A kernel for each number of rows: its error, whether a row has the bits of the row alone, microseconds, bandwidth.

Knows functions of rows; knows no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from specchat.bench.gpu.gpu_bench import Call, GpuBench
from specchat.bench.gpu.report import Line, attempt, merged
from specchat.forward.linear.linear import QuantLinear

REFERENCE_OUTPUTS = 2048  # of a product that are compared with float64, evenly spaced
ALWAYS = "all"


@dataclass(frozen=True)
class KernelCheck:
    """Row i of a pass over n rows is always computed from the same numbers."""

    together: Callable[[int], Tensor]  # the results of the first n rows, in one pass [n, *]
    alone: Callable[[int], Tensor]  # of row i in a pass of its own [*]
    error: Callable[[], float]  # of the most rows against float64: the norm of the difference, relative
    calls: Callable[[int], Sequence[Call]]  # a pass of n rows, once for each buffer that it may read
    moved_bytes: Callable[[int], int]  # that a pass of n rows must read and write
    checked_rows: Sequence[int] | None = None  # whose bits are compared; None: all


NamedCheck = tuple[str, Callable[[], KernelCheck]]


def check_lines(checks: Iterable[NamedCheck], bench: GpuBench) -> Iterator[Line]:
    """A line for each check; its buffers are made when it is its turn, and freed after it."""
    for name, make in checks:
        yield attempt(name, lambda make=make: _line(make(), bench))


@torch.inference_mode()
def _line(check: KernelCheck, bench: GpuBench) -> Line:
    """All that can be measured; where a number of rows fails, the others are there."""
    parts = [lambda: {"error": check.error()}, lambda: _bits(check, bench)]
    parts += [partial(_time, check, bench, count) for count in bench.sizes.rows]
    return merged(parts)


def _bits(check: KernelCheck, bench: GpuBench) -> Line:
    """In which batches every row has the bits of the row alone, and which batches agree about the first row."""
    counts = bench.sizes.row_counts
    checked = check.checked_rows or range(max(counts))
    alone = {row: check.alone(row) for row in checked if row < max(counts)}
    own, patterns, groups = list[int](), list[Tensor](), dict[int, list[int]]()
    for count in counts:
        results = check.together(count)
        if all(torch.equal(results[row], bits) for row, bits in alone.items() if row < count):
            own.append(count)
        known = next((index for index, each in enumerate(patterns) if torch.equal(each, results[0])), len(patterns))
        patterns += [results[0].clone()] if known == len(patterns) else []
        groups.setdefault(known, []).append(count)
    is_invariant = len(own) == len(counts)
    return {
        "own bits in batches of": ALWAYS if is_invariant else ranges(own),
        "batches alike": " / ".join(ranges(each) for each in groups.values()),
    }


def _time(check: KernelCheck, bench: GpuBench, count: int) -> Line:
    microseconds = bench.microseconds(check.calls(count))
    share = bench.bandwidth_share(check.moved_bytes(count), microseconds)
    return {f"us {count}": microseconds, f"bandwidth {count}": share}


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as text.

    >>> ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    spans = list[list[int]]()
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or "none"


def relative_error(ours: Tensor, exact: Tensor) -> float:
    """The norm of the difference by that of the exact numbers; NaN never passes."""
    exact = exact.double()
    return float((ours.double() - exact).norm() / exact.norm())


def product_check(
    bench: GpuBench, linears: Sequence[QuantLinear], inputs: int, dequantized: Callable[[], Tensor]
) -> KernelCheck:
    """The check of a linear layer, one of several that take turns with other memory."""
    rows = bench.noise(bench.sizes.most_rows, inputs)

    def error() -> float:
        weight = dequantized()
        outputs = torch.linspace(0, len(weight) - 1, min(REFERENCE_OUTPUTS, len(weight))).long().to(bench.device)
        exact = functional.linear(rows.double(), weight[outputs].double())
        return relative_error(linears[0](rows)[:, outputs], exact)

    def moved_bytes(count: int) -> int:
        return linears[0].bytes + 2 * count * inputs

    return KernelCheck(
        together=lambda count: linears[0](rows[:count]),
        alone=lambda row: linears[0](rows[row : row + 1])[0],
        error=error,
        calls=lambda count: [lambda each=each: each(rows[:count]) for each in linears],
        moved_bytes=moved_bytes,
    )
