"""`specchat models list`: the models of the catalog, and those on this disk."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from specchat.hub.catalog import CatalogEntry, catalog
from specchat.hub.local_models import local_models
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import fitting_gpu_sizes, format_gib


@click.command("list")
@click.option("--here", "is_here", is_flag=True, help="Only models on this disk.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def list_models(*, is_here: bool, is_json: bool) -> None:
    """List the models of the catalog, and those on this disk; uses no network.

    Sizes are those of the weights in bf16 and 4 bits (nf4-double); "fits GB" lists GPU sizes for a context of 8k.
    """
    downloaded = list(local_models())
    if is_json:
        known = [] if is_here else [_as_json(entry) for entry in catalog().values()]
        local = [{"id": each.id, "folder": str(each.folder), "bytes": each.bytes} for each in downloaded]
        click.echo(json.dumps({"catalog": known, "downloaded": local}, indent=1))
        return
    if not is_here:
        click.echo("\n".join(_catalog_lines({each.id for each in downloaded})))
        click.echo()
    click.echo(f"  {'on this disk':<42}{'size':>18}")
    for each in downloaded:
        click.echo(f"  {each.id:<42}{format_gib(each.bytes):>18}")


def _catalog_lines(downloaded_ids: set[str]) -> Iterator[str]:
    sizes = f"{'params':>8}{'bf16':>10}{'4 bits':>10}"
    yield f"  {'in the catalog':<42}{sizes}  {'fits GB':<16}{'drafters':<21}licence"
    for entry in catalog().values():
        architecture = entry.architecture
        sizes = "".join(f"{format_gib(weight_bytes(architecture, each)):>10}" for each in ("bf16", "nf4-double"))
        drafters = [*dict.fromkeys(head.kind for head in entry.heads), *(["draft"] if entry.draft_models else [])]
        gpu_sizes = " ".join(map(str, fitting_gpu_sizes(entry, entry.purposes[0]))) or "none"
        mark = "*" if entry.id in downloaded_ids else " "
        line = f"{mark} {entry.id:<42}{architecture.parameters / 1e9:>6.1f} B{sizes}  {gpu_sizes:<16}"
        yield f"{line}{' '.join(drafters) or '-':<21}{entry.licence}{' (gated)' * entry.is_gated}"
    if downloaded_ids & catalog().keys():
        yield "* is on this disk"


def _as_json(entry: CatalogEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "parameters": entry.architecture.parameters,
        "bytes": {name: weight_bytes(entry.architecture, name) for name in ("bf16", "int8", "nf4-double")},
        "fits_gb": fitting_gpu_sizes(entry, entry.purposes[0]),
        "purposes": entry.purposes,
        "licence": entry.licence,
        "gated": entry.is_gated,
        "heads": [{"kind": head.kind, "id": head.id} for head in entry.heads],
        "drafts": entry.draft_models,
        "same_weights_as": entry.same_shape_models,
    }
