"""`specchat models list`: what the catalog knows, and what lies on this disk."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from specchat.hub.catalog import CatalogEntry, catalog
from specchat.hub.local_models import LocalModel, local_models
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import fitting_gpu_sizes, format_gib


@click.command("list")
@click.option("--here", "is_here", is_flag=True, help="Only what lies on this disk.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def list_models(*, is_here: bool, is_json: bool) -> None:
    """List the models that specchat knows by name, and those that lie on this disk; asks no network.

    The sizes are of the weights in bf16 and in 4 bits (nf4-double); fits names cards in GB, with a text of 8k.
    """
    found = list(local_models())
    if is_json:
        known = [] if is_here else [_as_json(entry) for entry in catalog().values()]
        here = [{"id": each.id, "folder": str(each.folder), "bytes": each.bytes} for each in found]
        click.echo(json.dumps({"catalog": known, "here": here}, indent=1))
        return
    if not is_here:
        click.echo("\n".join(_catalog_lines({each.id for each in found})))
        click.echo()
    click.echo("\n".join(_disk_lines(found)))


def _catalog_lines(downloaded_ids: set[str]) -> Iterator[str]:
    sizes = f"{'params':>8}{'bf16':>10}{'4 bits':>10}"
    yield f"  {'in the catalog':<42}{sizes}  {'fits GB':<16}{'drafters':<21}licence"
    for entry in catalog().values():
        anatomy = entry.architecture
        sizes = "".join(f"{format_gib(weight_bytes(anatomy, way)):>10}" for way in ("bf16", "nf4-double"))
        cards = " ".join(map(str, fitting_gpu_sizes(entry, entry.purposes[0]))) or "none"
        line = f"{'*' if entry.id in downloaded_ids else ' '} {entry.id:<42}{anatomy.parameters / 1e9:>6.1f} B{sizes}  {cards:<16}"
        yield f"{line}{_drafters(entry):<21}{entry.licence}{' (gated)' * entry.is_gated}"
    if downloaded_ids & catalog().keys():
        yield "* lies on this disk"


def _drafters(entry: CatalogEntry) -> str:
    kinds = list(dict.fromkeys(head.kind for head in entry.heads))
    return " ".join((*kinds, *(["draft"] if entry.draft_models else []))) or "-"


def _disk_lines(downloaded: list[LocalModel]) -> Iterator[str]:
    yield f"  {'on this disk':<42}{'size':>18}"
    yield from (f"  {each.id:<42}{format_gib(each.bytes):>18}" for each in downloaded)


def _as_json(entry: CatalogEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "parameters": entry.architecture.parameters,
        "bytes": {way: weight_bytes(entry.architecture, way) for way in ("bf16", "int8", "nf4-double")},
        "fits_gb": fitting_gpu_sizes(entry, entry.purposes[0]),
        "purposes": entry.purposes,
        "licence": entry.licence,
        "gated": entry.is_gated,
        "heads": [{"kind": head.kind, "id": head.id} for head in entry.heads],
        "drafts": entry.draft_models,
        "same": entry.same_shape_models,
    }
