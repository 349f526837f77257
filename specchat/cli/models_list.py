"""`specchat models list`: the models of the catalog, and those on this disk."""

import json
import sys
from collections.abc import Iterator, Sequence

import click

from specchat.app.session_lines import short_folder
from specchat.cli.notes import print_rows, reading_columns
from specchat.hub.catalog import CatalogEntry, catalog
from specchat.hub.machine import Device, detect_machine
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import fitting_gpu_sizes, format_gib
from specchat.hub.runnable_models import ListedModel, listed_models

TABLE_COLUMNS = 100  # of a terminal on which a model has one line, and not two
NAME_COLUMNS = 44
CATALOG_SIZES, DISK_SIZES = (7, 10, 8), (10, 10)  # of the columns after the name


@click.command("list")
@click.option("--here", "--local", "is_here", is_flag=True, help="Only models on this disk.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def list_models(*, is_here: bool, is_json: bool) -> None:
    """List the models of the catalog, and those on this disk; uses no network.

    Of the catalog: the parameters, the weights in 4 bits (nf4-double), the smallest GPU that they fit with a context of
    8k, the drafters ('specchat help drafters') and the licence. A model that fills gaps completes in editors what
    stands between the text before and after the cursor.

    On this disk are the downloaded models, and those of Ollama and LM Studio; give the printed name to --target. "fits"
    is the most precise weight format with which a model and 8k tokens fit the memory that is free now.
    """
    device = detect_machine().best_device
    listed = list(listed_models(device))
    if is_json:
        known = [] if is_here else [_as_json(entry) for entry in catalog().values()]
        click.echo(json.dumps({"catalog": known, "downloaded": [_local_as_json(each) for each in listed]}, indent=1))
        return
    if not is_here:
        _print_rows(_catalog_rows({each.model.id for each in listed}), CATALOG_SIZES)
        click.echo()
    _print_rows(_disk_rows(listed, device), DISK_SIZES)


def _print_rows(rows: Iterator[tuple[str, ...]], sizes: Sequence[int]) -> None:
    """A table of names, numbers and words; on a narrow terminal each name has the rest below it."""
    is_narrow = 0 < reading_columns(sys.stdout) < TABLE_COLUMNS
    for name, *numbers, words in rows:
        if is_narrow:
            print_rows(name)
            if rest := ", ".join(filter(None, (*numbers, words))):
                print_rows(f"    {rest}")
        else:
            columns = "".join(f"{each:>{size}}" for each, size in zip(numbers, sizes, strict=True))
            if has_own_line := len(name) >= NAME_COLUMNS and any(numbers):
                print_rows(name)
            line = f"{'' if has_own_line else name:<{NAME_COLUMNS - 1}} {columns}  "
            print_rows(f"{line}{words}".rstrip(), len(line))


def _catalog_rows(downloaded_ids: set[str]) -> Iterator[tuple[str, ...]]:
    """Those that are not recommended stand below the reason."""
    yield "  in the catalog", "size", "4 bits", "GPU", "drafters, licence"
    reasons = dict.fromkeys(entry.not_recommended for entry in catalog().values())
    for reason in sorted(reasons, key=bool):
        if reason:
            yield f"  not recommended: {reason}", "", "", "", ""
        for entry in (each for each in catalog().values() if each.not_recommended == reason):
            drafters = [*dict.fromkeys(head.kind for head in entry.heads), *(["draft"] if entry.draft_models else [])]
            words = (" ".join(drafters), "fills gaps" * entry.is_fim, entry.licence + " (gated)" * entry.is_gated)
            gpu = min(fitting_gpu_sizes(entry), default=None)
            name = f"{'*' if entry.id in downloaded_ids else ' '} {entry.id}"
            size, small = entry.architecture.parameters, weight_bytes(entry.architecture, "nf4-double")
            fits = f"{gpu} GB" if gpu else "none"
            yield name, f"{size / 1e9:.1f} B", format_gib(small), fits, ", ".join(filter(None, words))
    if downloaded_ids & catalog().keys():
        yield "* is on this disk", "", "", "", ""


def _disk_rows(listed: Sequence[ListedModel], device: Device) -> Iterator[tuple[str, ...]]:
    yield "  on this disk", "size", "stored as", f"fits {format_gib(device.free_bytes)}"
    for each in listed:
        size = "-" if each.details.bytes is None else format_gib(each.details.bytes)
        yield f"  {short_folder(each.model.id)}", size, each.details.quantization or "-", _fit(each)


def _fit(each: ListedModel) -> str:
    if each.details.problem:
        return each.details.problem.removeprefix(f"{each.model.id}: ").removeprefix(f"{each.model.path}: ")
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
        "fits_gb": fitting_gpu_sizes(entry),
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
