"""`specchat vram`: what a pair takes in memory, before it is downloaded or loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from specchat.cli.size_options import Gigabytes, TokenCount, colour_fit_label, fit_label, format_token_count
from specchat.errors import UsageError
from specchat.hub.architecture import EMBEDDING, EXPERT, Architecture
from specchat.hub.catalog import catalog, find_entry, head_architecture
from specchat.hub.local_models import LocatedModel, locate_model
from specchat.hub.memory_plan import (
    BF16_BYTES,
    GIB,
    LISTED_FORMATS,
    LLAMA_LIKE_FAMILIES,
    SCRATCH_ROWS,
    MemoryPlan,
    QuantizedModel,
    cache_rows,
    kv_bytes_per_token,
    kv_cache_bytes,
    plan_memory,
    usable_gpu_bytes,
)
from specchat.hub.recommend import drafter_quant_format, format_gib

MIN_GIB = 1.5  # GiB; a table of less is in MiB
EXTRA_CONTEXTS = (4096, 16384)  # columns beside the one that was asked for
FP8_METHODS = ("fp8", "fbgemm_fp8")  # what checkpoints call it


@click.command()
@click.argument("model")
@click.option("--ctx", "context", type=TokenCount(), default="32k", show_default=True, help="Longest text, in tokens.")
@click.option("--draft", help="A model that drafts for it.")
@click.option("--head", help="A head that drafts for it: a folder, a hub id, or eagle3 or dflash for one of that kind.")
@click.option("--card", type=Gigabytes(), help="Mark what fits a card of so many GB with a screen on it.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object, in bytes.")
def vram(model: str, context: int, draft: str | None, head: str | None, card: float | None, *, is_json: bool) -> None:
    """Say what a model takes in memory: weights, drafter, text and workspace.

    MODEL is a folder, a config.json, a name of the catalog, or a hub id in the cache. Nothing is loaded or downloaded.
    """
    if draft and head:
        raise UsageError("--draft and --head: one of the two drafts; leave the other out")
    target = locate_model(model)
    drafter = locate_model(draft) if draft else _locate_head(head, target) if head else None
    contexts = sorted({*(each for each in EXTRA_CONTEXTS if each < context), context})
    table = {
        way: [_memory_need(target, drafter, way, tokens) for tokens in contexts]
        for way in _weight_formats(target.architecture)
    }
    room = usable_gpu_bytes(card) if card else None
    if is_json:
        click.echo(json.dumps(_as_json(target, drafter, contexts, table, room), indent=1))
        return
    click.echo(f"{target.name}: {_parameter_text(target)}, {target.evidence}")
    if drafter:
        click.echo(f"with {drafter.name}: {_parameter_text(drafter)}, {drafter.evidence}")
    click.echo("\n".join(_lines(contexts, table, room)))
    click.echo("\n".join(f"- {note}" for note in _notes(target.architecture, context)))


def _locate_head(name: str, target: LocatedModel) -> LocatedModel:
    """A head on this disk, or one that the catalog knows to be made for this target."""
    entry = find_entry(target.name)
    kinds = {
        each: published.kind for published in (entry.heads if entry else ()) for each in (published.id, published.kind)
    }
    if entry and name in kinds:
        named = next(published.id for published in entry.heads if name in (published.id, published.kind))
        return LocatedModel(named, head_architecture(entry.id, kinds[name]))
    for other in catalog().values():
        if any(published.id == name for published in other.heads):
            raise UsageError(f"--head {name} was trained for {other.id}, not for {target.name}")
    return locate_model(name)


def _weight_formats(anatomy: Architecture) -> Sequence[str]:
    """The rows of the table; a checkpoint in MXFP4 has one more."""
    return (*LISTED_FORMATS, "mxfp4") if anatomy.stored_format == "mxfp4" else LISTED_FORMATS


def _memory_need(target: LocatedModel, drafter: LocatedModel | None, way: str, tokens: int) -> MemoryPlan:
    is_model = (
        drafter is not None
        and drafter.architecture.layers > 1
        and drafter.architecture.family not in ("dflash", "medusa")
    )
    held = QuantizedModel(drafter.architecture, drafter_quant_format(way) if is_model else "bf16") if drafter else None
    return plan_memory(QuantizedModel(target.architecture, way), held, tokens, uses_sliding_windows=False)


def _parameter_text(found: LocatedModel) -> str:
    parameters = found.architecture.parameters
    said = f"{parameters / 1e9:.2f} B" if parameters >= 1e8 else f"{parameters / 1e6:.1f} M"
    stored = found.architecture.stored_bytes
    return f"{said} parameters" + (f", {format_gib(stored)} on disk" if stored is not None else "")


def _lines(contexts: Sequence[int], table: dict[str, list[MemoryPlan]], available_bytes: int | None) -> Iterator[str]:
    marks = 6 * (available_bytes is not None)
    heads = "".join(f"{format_token_count(context):>{9 + marks}}" for context in contexts)
    unit, name = (GIB, "GiB") if max(each.total_bytes for each in table["bf16"]) >= GIB * MIN_GIB else (2**20, "MiB")
    yield f"{name:<12}{'weights':>9}{'drafter':>9}{'workspace':>11}{heads}"
    for way, needs in table.items():
        first = needs[0]
        cells = "".join(_total_cell(each.total_bytes, available_bytes, unit) for each in needs)
        sizes = (
            f"{first.weight_bytes / unit:>9.1f}{first.drafter_bytes / unit:>9.1f}{first.workspace_bytes / unit:>11.1f}"
        )
        yield f"{way:<12}{sizes}{cells}".rstrip()


def _total_cell(total: int, available_bytes: int | None, unit: int) -> str:
    shown = f"{total / unit:>9.1f}"
    if available_bytes is None:
        return shown
    word = fit_label(total, available_bytes)
    return f"{shown} {colour_fit_label(word)}{' ' * (5 - len(word))}"


def _notes(anatomy: Architecture, context: int) -> Iterator[str]:
    """What a table cannot say."""
    yield from _kv_cache_notes(anatomy, context)
    yield from _weight_notes(anatomy)
    yield from anatomy.notes


def _kv_cache_notes(anatomy: Architecture, context: int) -> Iterator[str]:
    if row := kv_bytes_per_token(anatomy):
        yield f"a token takes {row / 1024:.3g} KiB of keys and values"
    rows = cache_rows(context)
    if rows > context + SCRATCH_ROWS:
        yield (
            f"rows are set aside in powers of two: a full context of {context} takes {rows}, "
            f"one of {(rows - SCRATCH_ROWS) // 2} takes {(rows + SCRATCH_ROWS) // 2}"
        )
    if any(kept.sliding_window for kept in anatomy.kv_layers):
        spared = kv_cache_bytes(anatomy, context, uses_sliding_windows=False) - kv_cache_bytes(anatomy, context)
        yield f"layers with a window keep all rows here, to take guesses back: {format_gib(spared)} more than they look at"
    if anatomy.recurrent_elements:
        yield f"recurrent layers keep {format_gib(kv_cache_bytes(anatomy, 0))}, however long the text is"
    if anatomy.max_position_embeddings and context > anatomy.max_position_embeddings:
        yield f"it was made for texts of {anatomy.max_position_embeddings} tokens"


def _weight_notes(anatomy: Architecture) -> Iterator[str]:
    if experts := anatomy.parameters_of_kind(EXPERT):
        yield f"bitsandbytes leaves the {experts / 1e9:.1f} B parameters of its experts in bf16; fp8 and mxfp4 do not"
    if anatomy.stored_format in FP8_METHODS and anatomy.family in LLAMA_LIKE_FAMILIES:
        yield 'its weights are saved in 8 bits: models.weights = "float" makes them bf16, "fp8" keeps them'
    elif anatomy.stored_format != "fp8" and anatomy.family not in LLAMA_LIKE_FAMILIES:
        yield "fp8 is for checkpoints that are published so"
    embeddings = format_gib(BF16_BYTES * anatomy.parameters_of_kind(EMBEDDING))
    if anatomy.family not in LLAMA_LIKE_FAMILIES:
        yield f"{anatomy.family} runs in bf16 and float32 here; models.weights is for {', '.join(LLAMA_LIKE_FAMILIES)}"
    elif anatomy.is_tied:
        yield f"its embeddings are its output matrix as well: below bf16 the {embeddings} to look up stay beside it"
    else:
        yield f'models.embedding = "cpu" keeps {embeddings} of embeddings in main memory'


def _as_json(
    target: LocatedModel,
    drafter: LocatedModel | None,
    contexts: Sequence[int],
    table: dict[str, list[MemoryPlan]],
    available_bytes: int | None,
) -> dict[str, object]:
    return {
        "model": target.name,
        "drafter": drafter.name if drafter else None,
        "parameters": target.architecture.parameters,
        "evidence": target.evidence,
        "stored_bytes": target.architecture.stored_bytes,
        "room": available_bytes,
        "needs": [
            {"weights_held": way, "context": context, **asdict(each), "total": each.total_bytes}
            | ({"mark": fit_label(each.total_bytes, available_bytes)} if available_bytes is not None else {})
            for way, needs in table.items()
            for context, each in zip(contexts, needs, strict=True)
        ],
        "notes": list(_notes(target.architecture, contexts[-1])),
    }
