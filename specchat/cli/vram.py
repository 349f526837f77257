"""`specchat vram`: what a pair takes in memory, before it is downloaded or loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from specchat.cli.bytes_format import Gigabytes, Tokens, coloured, length, mark
from specchat.errors import UsageError
from specchat.hub.architecture import EMBEDDING, EXPERT, Anatomy
from specchat.hub.catalog import catalog, find_entry, head_anatomy
from specchat.hub.local_files import Located, locate
from specchat.hub.memory_plan import (
    DENSE,
    GIB,
    HALF_BYTES,
    SCRATCH,
    SHOWN,
    Held,
    Need,
    need,
    row_bytes,
    rows_of,
    text_bytes,
    usable,
)
from specchat.hub.recommend import drafter_way, in_gib

SMALL = 1.5  # GiB; a table of less is in MiB
SHORTER = (4096, 16384)  # columns beside the one that was asked for
EIGHT_BITS = ("fp8", "fbgemm_fp8")  # what checkpoints call it


@click.command()
@click.argument("model")
@click.option("--ctx", "context", type=Tokens(), default="32k", show_default=True, help="Longest text, in tokens.")
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
    target = locate(model)
    drafter = locate(draft) if draft else _head(head, target) if head else None
    contexts = sorted({*(each for each in SHORTER if each < context), context})
    table = {way: [_need(target, drafter, way, tokens) for tokens in contexts] for way in _ways(target.anatomy)}
    room = usable(card) if card else None
    if is_json:
        click.echo(json.dumps(_as_json(target, drafter, contexts, table, room), indent=1))
        return
    click.echo(f"{target.name}: {_size(target)}, {target.evidence}")
    if drafter:
        click.echo(f"with {drafter.name}: {_size(drafter)}, {drafter.evidence}")
    click.echo("\n".join(_lines(contexts, table, room)))
    click.echo("\n".join(f"- {note}" for note in _notes(target.anatomy, context)))


def _head(name: str, target: Located) -> Located:
    """A head on this disk, or one that the catalog knows to be made for this target."""
    entry = find_entry(target.name)
    kinds = {
        each: published.kind for published in (entry.heads if entry else ()) for each in (published.id, published.kind)
    }
    if entry and name in kinds:
        named = next(published.id for published in entry.heads if name in (published.id, published.kind))
        return Located(named, head_anatomy(entry.id, kinds[name]))
    for other in catalog().values():
        if any(published.id == name for published in other.heads):
            raise UsageError(f"--head {name} was trained for {other.id}, not for {target.name}")
    return locate(name)


def _ways(anatomy: Anatomy) -> Sequence[str]:
    """The rows of the table; a checkpoint in MXFP4 has one more."""
    return (*SHOWN, "mxfp4") if anatomy.stored_as == "mxfp4" else SHOWN


def _need(target: Located, drafter: Located | None, way: str, tokens: int) -> Need:
    is_model = drafter is not None and drafter.anatomy.layers > 1 and drafter.anatomy.family not in ("dflash", "medusa")
    held = Held(drafter.anatomy, drafter_way(way) if is_model else "bf16") if drafter else None
    return need(Held(target.anatomy, way), held, tokens, keeps_windows=False)


def _size(found: Located) -> str:
    parameters = found.anatomy.parameters
    said = f"{parameters / 1e9:.2f} B" if parameters >= 1e8 else f"{parameters / 1e6:.1f} M"
    stored = found.anatomy.stored_bytes
    return f"{said} parameters" + (f", {in_gib(stored)} on disk" if stored is not None else "")


def _lines(contexts: Sequence[int], table: dict[str, list[Need]], room: int | None) -> Iterator[str]:
    marks = 6 * (room is not None)
    heads = "".join(f"{length(context):>{9 + marks}}" for context in contexts)
    unit, name = (GIB, "GiB") if max(each.total for each in table["bf16"]) >= GIB * SMALL else (2**20, "MiB")
    yield f"{name:<12}{'weights':>9}{'drafter':>9}{'workspace':>11}{heads}"
    for way, needs in table.items():
        first = needs[0]
        cells = "".join(_cell(each.total, room, unit) for each in needs)
        sizes = f"{first.weights / unit:>9.1f}{first.drafter / unit:>9.1f}{first.workspace / unit:>11.1f}"
        yield f"{way:<12}{sizes}{cells}".rstrip()


def _cell(total: int, room: int | None, unit: int) -> str:
    shown = f"{total / unit:>9.1f}"
    if room is None:
        return shown
    word = mark(total, room)
    return f"{shown} {coloured(word)}{' ' * (5 - len(word))}"


def _notes(anatomy: Anatomy, context: int) -> Iterator[str]:
    """What a table cannot say."""
    yield from _text_notes(anatomy, context)
    yield from _weight_notes(anatomy)
    yield from anatomy.notes


def _text_notes(anatomy: Anatomy, context: int) -> Iterator[str]:
    if row := row_bytes(anatomy):
        yield f"a token takes {row / 1024:.3g} KiB of keys and values"
    rows = rows_of(context)
    if rows > context + SCRATCH:
        yield (
            f"rows are set aside in powers of two: a full context of {context} takes {rows}, "
            f"one of {(rows - SCRATCH) // 2} takes {(rows + SCRATCH) // 2}"
        )
    if any(kept.window for kept in anatomy.kept):
        spared = text_bytes(anatomy, context, keeps_windows=False) - text_bytes(anatomy, context)
        yield f"layers with a window keep all rows here, to take guesses back: {in_gib(spared)} more than they look at"
    if anatomy.state:
        yield f"recurrent layers keep {in_gib(text_bytes(anatomy, 0))}, however long the text is"
    if anatomy.longest and context > anatomy.longest:
        yield f"it was made for texts of {anatomy.longest} tokens"


def _weight_notes(anatomy: Anatomy) -> Iterator[str]:
    if experts := anatomy.numbers(EXPERT):
        yield f"bitsandbytes leaves the {experts / 1e9:.1f} B parameters of its experts in bf16; fp8 and mxfp4 do not"
    if anatomy.stored_as in EIGHT_BITS and anatomy.family in DENSE:
        yield 'its weights are saved in 8 bits: models.weights = "float" makes them bf16, "fp8" keeps them'
    elif anatomy.stored_as != "fp8" and anatomy.family not in DENSE:
        yield "fp8 is for checkpoints that are published so"
    embeddings = in_gib(HALF_BYTES * anatomy.numbers(EMBEDDING))
    if anatomy.family not in DENSE:
        yield f"{anatomy.family} runs in bf16 and float32 here; models.weights is for {', '.join(DENSE)}"
    elif anatomy.is_tied:
        yield f"its embeddings are its output matrix as well: below bf16 the {embeddings} to look up stay beside it"
    else:
        yield f'models.embedding = "cpu" keeps {embeddings} of embeddings in main memory'


def _as_json(
    target: Located, drafter: Located | None, contexts: Sequence[int], table: dict[str, list[Need]], room: int | None
) -> dict[str, object]:
    return {
        "model": target.name,
        "drafter": drafter.name if drafter else None,
        "parameters": target.anatomy.parameters,
        "evidence": target.evidence,
        "stored_bytes": target.anatomy.stored_bytes,
        "room": room,
        "needs": [
            {"weights_held": way, "context": context, **asdict(each), "total": each.total}
            | ({"mark": mark(each.total, room)} if room is not None else {})
            for way, needs in table.items()
            for context, each in zip(contexts, needs, strict=True)
        ],
        "notes": list(_notes(target.anatomy, contexts[-1])),
    }
