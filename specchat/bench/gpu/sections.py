"""All sections of the report of a GPU, in an order in which the most useful ones come first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from specchat.bench.gpu.catalog_models import catalog_lines, verify_lines
from specchat.bench.gpu.device_facts import device_lines, floor_lines
from specchat.bench.gpu.gpu_bench import GpuBench
from specchat.bench.gpu.kernel_checks import check_lines
from specchat.bench.gpu.linear_layers import product_checks, sampler_lines
from specchat.bench.gpu.network_passes import eagle_lines, pass_lines
from specchat.bench.gpu.own_kernels import own_kernel_checks
from specchat.bench.gpu.report import Line, Section
from specchat.devices import CUDA, check_available
from specchat.errors import UsageError

KERNEL_NOTE = (
    "error: against float64, relative norm; of int8 and fp8 the rounding of activations is a part of it. own bits: the "
    "batches in which each row has the bits of the row alone. batches alike: those whose first row has the same bits. "
    "us: one call in a captured graph, launch included. bandwidth: bytes that must be moved, relative to a copy."
)
FORWARD_NOTE = (
    "Milliseconds from the call to its end by the host's clock, for a chain of so many rows; random weights. Rows are "
    "padded to the width of the next graph. batches alike: those whose first row has the same bits."
)
CATALOG_NOTE = (
    "What 'specchat models recommend' names, at tiny size with random weights in bfloat16; a model that is not exact "
    "may differ at a near tie."
)
MEASURES: dict[str, tuple[str, Callable[[GpuBench], Iterable[Line]]]] = {
    "device": ("What the machine says.", device_lines),
    "floors": ("Medians. A copy counts the bytes that it reads and those that it writes.", floor_lines),
    "kernels": (KERNEL_NOTE, lambda bench: check_lines(own_kernel_checks(bench), bench)),
    "products": (KERNEL_NOTE, lambda bench: check_lines(product_checks(bench), bench)),
    "sampler": ("Noise, temperature and choice as in every graph, over logits in bfloat16.", sampler_lines),
    "passes": (FORWARD_NOTE, pass_lines),
    "eagle": ("A draft from the call to the packed tree, behind 200 tokens; random weights.", eagle_lines),
    "verify": ("The embedded model with every drafter that it can run, against plain decoding.", verify_lines),
    "catalog": (CATALOG_NOTE, catalog_lines),
}


def gpu_sections(names: Iterable[str] = ()) -> list[Section]:
    """The named sections, or all. UsageError for a name that does not exist, ModelError without a GPU."""
    chosen = list(names) or list(MEASURES)
    if unknown := [name for name in chosen if name not in MEASURES]:
        raise UsageError(f"--sections {unknown[0]}: there are {', '.join(MEASURES)}")
    check_available(CUDA.name)
    torch.manual_seed(0)
    bench = GpuBench.of(torch.device(CUDA.name))

    def section(name: str) -> Section:
        explanation, measure = MEASURES[name]
        return Section(name, explanation, lambda: measure(bench))

    return [section(name) for name in chosen]
