"""`specchat models recommend`: the best pair for the memory that is free, the reasons, and a profile that uses it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from specchat.cli.save_profile import pull_command, save_profile
from specchat.cli.size_options import Gigabytes, TokenCount
from specchat.hub.catalog import GPU_SIZES_GB
from specchat.hub.machine import CPU, Device, Machine, detect_machine, memory_bandwidth, simulated_gpu
from specchat.hub.memory_plan import GIB
from specchat.hub.recommend import DEFAULT_CONTEXT_TOKENS, PURPOSES, PairRequirements, profile_text, reasons, recommend

if TYPE_CHECKING:
    from specchat.hub.recommend import ModelPair

ALTERNATIVE_COUNT = 2
NOTHING_FITS_MESSAGE = "no model of the catalog fits here; 'specchat demo' and the embedded models run in 1 GiB"


@click.command("recommend")
@click.option("--memory", type=Gigabytes(), help="For a GPU with this many GB that also drives a screen.")
@click.option("--for", "purpose", type=click.Choice(PURPOSES), default="chat", show_default=True, help="The purpose.")
@click.option(
    "--ctx",
    "context",
    type=TokenCount(),
    default=DEFAULT_CONTEXT_TOKENS,
    show_default=True,
    help="Context window, in tokens.",
)
@click.option("--cpu", "is_cpu", is_flag=True, help="Ignore GPUs.")
@click.option(
    "--gpu-table", "prints_gpu_table", is_flag=True, help="Print the best pair for every GPU size, as Markdown."
)
@click.option("--save", metavar="NAME", help="Write the profile of the best pair under this name.")
@click.option("--force", "is_forced", is_flag=True, help="Replace a profile of that name.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def recommend_command(
    memory: float | None,
    purpose: str,
    context: int,
    save: str | None,
    *,
    is_cpu: bool,
    prints_gpu_table: bool,
    is_forced: bool,
    is_json: bool,
) -> None:
    """Choose a target and its drafter by the free memory; weights and KV cache are both counted.

    Downloads nothing. Without a GPU, main memory and its bandwidth decide, which is measured for a second.
    """
    if prints_gpu_table:
        click.echo("\n".join(gpu_table()))
        return
    machine = None if memory else measure_machine()
    if machine is None:
        device = simulated_gpu(memory or 0)
    else:
        device = machine.cpu if is_cpu else machine.best_device
    pairs = recommend_for_device(device, PairRequirements(purpose, context), machine)
    if is_json:
        click.echo(json.dumps(_as_json(device, pairs), indent=1))
    elif pairs:
        click.echo("\n".join(_lines(device, pairs)))
    else:
        click.echo(f"{describe_device(device)}: {NOTHING_FITS_MESSAGE}")
    if save and pairs:
        path = save_profile(save, profile_text(pairs[0], save), overwrites=is_forced)
        print(f"written to {path}; use it with --profile {save}", file=sys.stderr)


def gpu_table() -> Iterator[str]:
    """The best pair for every GPU size and purpose, as in docs/models.md."""
    yield "| GPU | for | target | quantization | drafter | GiB at 8k |"
    yield "|---|---|---|---|---|---|"
    for gigabytes in GPU_SIZES_GB:
        for purpose in PURPOSES:
            best = recommend(simulated_gpu(gigabytes), PairRequirements(purpose))[0]
            tight = ", tight" * best.is_memory_tight
            cells = (f"{gigabytes} GB", purpose, best.entry.id, best.quant_format, best.drafter.id or "prompt lookup")
            yield f"| {' | '.join(cells)} | {best.memory_plan.total_bytes / GIB:.1f}{tight} |"


def measure_machine() -> Machine:
    """Detect this machine; without a GPU the memory bandwidth is measured, after a line that says so."""
    machine = detect_machine()
    if machine.best_device.is_gpu:
        return machine
    print("no GPU found; measuring the bandwidth of main memory (a second at most)", file=sys.stderr)
    return replace(machine, bytes_per_second=memory_bandwidth())


def recommend_for_device(device: Device, requirements: PairRequirements, machine: Machine | None) -> list[ModelPair]:
    """The pairs that fit, the best first. The bandwidth is that of main memory, so it is not used for a GPU."""
    features = machine.cpu_features if machine else ()
    bandwidth = machine.bytes_per_second if machine and device.kind == CPU else None
    return recommend(device, requirements, features, bandwidth)


def describe_device(device: Device) -> str:
    return f"{device.name}: {device.free_bytes / GIB:.1f} of {device.total_bytes / GIB:.1f} GiB free"


def describe_pair(pair: ModelPair) -> Iterator[str]:
    """A pair in one line, and the reasons below it."""
    drafter = pair.drafter.id or "prompt lookup"
    yield f"{pair.entry.id} ({pair.quant_format}) with {drafter}"
    yield from (f"    {line}" for line in reasons(pair))
    yield f"    licence: {pair.entry.licence}"


def _lines(device: Device, pairs: list[ModelPair]) -> Iterator[str]:
    best, *others = pairs[: 1 + ALTERNATIVE_COUNT]
    yield describe_device(device)
    if not device.is_gpu:
        yield "without a GPU expect small models and few tokens per second; 'specchat bench' measures the drafters"
    for label, pair in (("best", best), *(("or", other) for other in others)):
        first, *why = describe_pair(pair)
        yield ""
        yield f"{label:<5}{first}"
        yield from (f" {line}" for line in why)
    yield ""
    yield f"download   {pull_command(best)}"
    yield "profile    (--save NAME writes it)"
    yield ""
    yield from profile_text(best, "mine").splitlines()


def _as_json(device: Device, pairs: list[ModelPair]) -> dict[str, object]:
    return {
        "device": asdict(device),
        "pairs": [
            {
                "target": pair.entry.id,
                "quant_format": pair.quant_format,
                "drafter": {"kind": pair.drafter.kind, "id": pair.drafter.id},
                "context": pair.context_tokens,
                "embedding_device": "cpu" if pair.embeddings_on_cpu else "auto",
                "bytes": {**asdict(pair.memory_plan), "total": pair.memory_plan.total_bytes},
                "is_tight": pair.is_memory_tight,
                "plain_tokens_per_second": pair.plain_tokens_per_second,
                "reasons": list(reasons(pair)),
                "profile": profile_text(pair, "mine"),
            }
            for pair in pairs[: 1 + ALTERNATIVE_COUNT]
        ],
    }
