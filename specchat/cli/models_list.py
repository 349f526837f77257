"""`specchat models list`: the models of the catalog, and those on this disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from specchat.app.session_lines import short_folder
from specchat.cli.notes import print_rows
from specchat.hub.catalog import CatalogEntry, catalog
from specchat.hub.machine import Device, detect_machine
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import fitting_gpu_sizes, format_gib
from specchat.hub.runnable_models import ListedModel, listed_models


@click.command("list")
@click.option("--here", "--local", "is_here", is_flag=True, help="Only models on this disk.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def list_models(*, is_here: bool, is_json: bool) -> None:
    """List the models of the catalog, and those on this disk; uses no network.

    On this disk are the downloaded models, and those of Ollama and LM Studio; give the printed name to --target. Sizes
    in the catalog are those of the weights in bf16 and 4 bits (nf4-double); "fits GB" lists GPU sizes for a context of
    8k. A model that fills gaps completes in editors what stands between the text before and after the cursor. "fits"
    is the most precise weight format with which a model and 8k tokens fit the memory that is free now.
    """
    device = detect_machine().best_device
    listed = list(listed_models(device))
    if is_json:
        known = [] if is_here else [_as_json(entry) for entry in catalog().values()]
        click.echo(json.dumps({"catalog": known, "downloaded": [_local_as_json(each) for each in listed]}, indent=1))
        return
    if not is_here:
        print_rows("\n".join([*_catalog_lines({each.model.id for each in listed}), ""]))
    print_rows("\n".join(_disk_lines(listed, device)))


def _catalog_lines(downloaded_ids: set[str]) -> Iterator[str]:
    sizes = f"{'params':>8}{'bf16':>10}{'4 bits':>10}"
    yield f"  {'in the catalog':<42}{sizes}  {'fits GB':<21}{'drafters':<21}{'gaps':<7}licence"
    for entry in sorted(catalog().values(), key=lambda each: bool(each.not_recommended)):
        architecture = entry.architecture
        sizes = "".join(f"{format_gib(weight_bytes(architecture, each)):>10}" for each in ("bf16", "nf4-double"))
        drafters = [*dict.fromkeys(head.kind for head in entry.heads), *(["draft"] if entry.draft_models else [])]
        gpu_sizes = " ".join(map(str, fitting_gpu_sizes(entry, entry.purposes[0]))) or "none"
        mark = "*" if entry.id in downloaded_ids else " "
        line = f"{mark} {entry.id:<42}{architecture.parameters / 1e9:>6.1f} B{sizes}  {gpu_sizes:<21}"
        gaps = "fills" if entry.is_fim else "-"
        line += f"{' '.join(drafters) or '-':<21}{gaps:<7}{entry.licence}"
        yield f"{line}{' (gated)' * entry.is_gated}{_why_not(entry)}"
    if downloaded_ids & catalog().keys():
        yield "* is on this disk"


def _why_not(entry: CatalogEntry) -> str:
    return f"; not recommended: {entry.not_recommended}" if entry.not_recommended else ""


def _disk_lines(listed: Sequence[ListedModel], device: Device) -> Iterator[str]:
    yield f"  {'on this disk':<42}{'size':>10}  {'stored as':<10}fits {format_gib(device.free_bytes)}"
    for each in listed:
        size = "-" if each.details.bytes is None else format_gib(each.details.bytes)
        yield f"  {short_folder(each.model.id):<42}{size:>10}  {each.details.quantization or '-':<10}{_fit(each)}"


def _fit(each: ListedModel) -> str:
    if each.details.problem:
        return each.details.problem.removeprefix(f"{each.model.id}: ")
    if each.details.architecture is None:
        return "-"
    return {None: "no", "bf16": "yes"}.get(each.fits, f"with --weights {each.fits}")


def _local_as_json(each: ListedModel) -> dict[str, object]:
    return {
        "id": each.model.id,
        "path": str(each.model.path),
        "bytes": each.details.bytes,
        "quantization": each.details.quantization,
        "fits": each.fits,
        "problem": each.details.problem,
    }


def _as_json(entry: CatalogEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "parameters": entry.architecture.parameters,
        "bytes": {name: weight_bytes(entry.architecture, name) for name in ("bf16", "int8", "nf4-double")},
        "fits_gb": fitting_gpu_sizes(entry, entry.purposes[0]),
        "purposes": entry.purposes,
        "licence": entry.licence,
        "released": entry.released.isoformat(),
        "not_recommended": entry.not_recommended,
        "gated": entry.is_gated,
        "fills_gaps": entry.is_fim,
        "heads": [{"kind": head.kind, "id": head.id} for head in entry.heads],
        "drafts": entry.draft_models,
        "same_weights_as": entry.same_shape_models,
    }
