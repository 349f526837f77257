"""`specchat vram`: the memory that a model and its drafter take, before they are downloaded or loaded."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from specchat.cli.completion import complete_models, complete_profiles
from specchat.cli.models_recommend import Gigabytes, TokenCount
from specchat.devices import GGUF_FORMAT, DeviceKind
from specchat.errors import UsageError
from specchat.hub.architecture import FLOAT_FORMATS, HEAD, Architecture
from specchat.hub.catalog import catalog, find_entry, head_architecture
from specchat.hub.local_models import LocatedModel, locate_model
from specchat.hub.machine import Device, Machine, cpu_features, detect_machine, main_memory, simulated_gpu
from specchat.hub.memory_plan import (
    GIB,
    KEPT_CHECKPOINTS,
    STORAGE_FORMATS,
    MemoryPlan,
    QuantizedModel,
    can_quantize,
    keeps_blocks,
    lacks_quantizer,
    plan_memory,
)
from specchat.hub.recommend import FITS, TIGHT, TOO_LARGE, drafter_quant_format, fit_label, format_gib
from specchat.loading.fitted_plan import plan_for_machine
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from specchat_bench.memory_notes import evidence_of, memory_notes

MIN_GIB = 1.5  # smaller tables are in MiB
LISTED_FORMATS = ("bf16", "fp8", "int8", "nf4", "nf4-double")
EXTRA_CONTEXTS = (4096, 16384)  # columns beside the requested one
FIT_COLOURS = {FITS: "green", TIGHT: "yellow", TOO_LARGE: "red"}


@click.command()
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--profile",
    "-P",
    default="chat",
    show_default=True,
    help="Without MODEL: the profile to plan.",
    shell_complete=complete_profiles,
)
@click.option(
    "--ctx", "context", type=TokenCount(), default="32k", show_default=True, help="Context window, in tokens."
)
@click.option("--draft", help="A draft model.", shell_complete=complete_models)
@click.option("--head", help="A head: a folder, a hub id, or eagle3 or dflash for one of the catalog.")
@click.option(
    "--gpu-memory", type=Gigabytes(), help="For a GPU of this many GB that also drives a screen, not for this machine."
)
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def vram(
    model: str | None,
    profile: str,
    context: int,
    draft: str | None,
    head: str | None,
    gpu_memory: float | None,
    *,
    is_json: bool,
) -> None:
    """Show the memory that a model takes, and whether it fits here: weights, drafter, KV cache and workspace.

    MODEL is a folder, a GGUF file, a config.json, a name of the catalog, or a hub id in the cache. Nothing is loaded or
    downloaded. Without MODEL, print what a profile loads, and whether that fits.
    """
    if model is None:
        if draft or head or is_json:
            raise UsageError("--draft, --head and --json need a MODEL")
        click.echo(_plan_text(load_profile(profile), gpu_memory))
        return
    if draft and head:
        raise UsageError("--draft and --head cannot be combined")
    target = locate_model(model)
    drafter = locate_model(draft) if draft else _locate_head(head, target) if head else None
    contexts = sorted({*(each for each in EXTRA_CONTEXTS if each < context), context})
    device = simulated_gpu(gpu_memory) if gpu_memory else detect_machine().best_device
    formats = listed_formats(target.architecture, device.kind)
    table = {each: [_memory_need(target, drafter, each, tokens, device) for tokens in contexts] for each in formats}
    if is_json:
        click.echo(json.dumps(_as_json(target, drafter, contexts, table, device), indent=1))
        return
    click.echo(f"{target.name}: {_parameter_text(target)}, {evidence_of(target)}")
    if drafter:
        click.echo(f"with {drafter.name}: {_parameter_text(drafter)}, {evidence_of(drafter)}")
    click.echo(f"on {device.name}, {format_gib(device.free_bytes)} free")
    click.echo("\n".join(_lines(contexts, table, device)))
    click.echo("\n".join(f"- {note}" for note in memory_notes(target.architecture, context)))


def _plan_text(profile: Profile, gpu_gib: float | None) -> str:
    """The load plan of a profile on this machine, or with a GPU of this size; without torch and without a download."""
    gpu = simulated_gpu(gpu_gib) if gpu_gib else None
    machine = Machine((gpu, main_memory()), cpu_features()) if gpu else detect_machine()
    return plan_for_machine(profile, machine).text(machine)


def listed_formats(architecture: Architecture, kind: DeviceKind) -> tuple[str, ...]:
    """The formats that a model can have in memory; in some it must be published."""
    stored = architecture.stored_format
    if keeps_blocks(architecture, kind):
        return (GGUF_FORMAT, *LISTED_FORMATS)
    if not can_quantize(architecture) or lacks_quantizer(architecture):
        return ("bf16", stored) if stored in STORAGE_FORMATS and stored not in FLOAT_FORMATS else ("bf16",)
    return (*LISTED_FORMATS, KEPT_CHECKPOINTS[stored]) if stored in KEPT_CHECKPOINTS else LISTED_FORMATS


def _locate_head(name: str, target: LocatedModel) -> LocatedModel:
    """A head on this disk, or one that the catalog lists for this target."""
    if entry := find_entry(target.name):
        for published in entry.heads:
            if name in (published.id, published.kind):
                return LocatedModel(published.id, head_architecture(entry.id, published.kind))
    for other in catalog().values():
        if any(published.id == name for published in other.heads):
            raise UsageError(f"--head {name} was trained for {other.id}, not for {target.name}")
    return locate_model(name)


def _parameter_text(located: LocatedModel) -> str:
    parameters = located.architecture.parameters
    text = f"{parameters / 1e9:.2f} B" if parameters >= 1e8 else f"{parameters / 1e6:.1f} M"
    stored = located.architecture.stored_bytes
    return f"{text} parameters" + (f", {format_gib(stored)} on disk" if stored is not None else "")


def _lines(contexts: Sequence[int], table: dict[str, list[MemoryPlan]], device: Device) -> Iterator[str]:
    names = [f"{context // 1024}k" if context % 1024 == 0 else str(context) for context in contexts]
    heads = "".join(f"{name:>15}" for name in names)
    unit, name = (GIB, "GiB") if max(each.total_bytes for each in table["bf16"]) >= GIB * MIN_GIB else (2**20, "MiB")
    yield f"{name:<12}{'weights':>9}{'drafter':>9}{'workspace':>11}{heads}"
    for quant_format, needs in table.items():
        first = needs[0]
        cells = "".join(_total_cell(each.total_bytes, device, unit) for each in needs)
        sizes = f"{first.weight_bytes / unit:>9.1f}{first.drafter_bytes / unit:>9.1f}"
        yield f"{quant_format:<12}{sizes}{first.workspace_bytes / unit:>11.1f}{cells}".rstrip()


def _total_cell(total: int, device: Device, unit: int) -> str:
    label = fit_label(total, device.free_bytes)
    return f"{total / unit:>9.1f} {click.style(label, fg=FIT_COLOURS[label])}{' ' * (5 - len(label))}"


def _as_json(
    target: LocatedModel,
    drafter: LocatedModel | None,
    contexts: Sequence[int],
    table: dict[str, list[MemoryPlan]],
    device: Device,
) -> dict[str, object]:
    return {
        "model": target.name,
        "drafter": drafter.name if drafter else None,
        "parameters": target.architecture.parameters,
        "evidence": evidence_of(target),
        "stored_bytes": target.architecture.stored_bytes,
        "device": device.name,
        "available_bytes": device.free_bytes,
        "memory": [
            {"quant_format": quant_format, "context": context, **asdict(each), "total": each.total_bytes}
            | {"fit": fit_label(each.total_bytes, device.free_bytes)}
            for quant_format, needs in table.items()
            for context, each in zip(contexts, needs, strict=True)
        ],
        "notes": memory_notes(target.architecture, contexts[-1]),
    }


def _memory_need(
    target: LocatedModel, drafter: LocatedModel | None, quant_format: str, tokens: int, device: Device
) -> MemoryPlan:
    quantized, drafter_model = QuantizedModel(target.architecture, quant_format), None
    if drafter:
        is_head = drafter.architecture.family == HEAD
        drafter_format = "bf16" if is_head else drafter_quant_format(quant_format, kind=device.kind)
        drafter_model = QuantizedModel(drafter.architecture, drafter_format)
    return plan_memory(quantized, drafter_model, tokens, kind=device.kind)
