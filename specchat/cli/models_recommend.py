"""`specchat models recommend`: the best pair for the memory that is free, the reasons, and a profile that uses it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from specchat.cli.bytes_format import Gigabytes, Tokens
from specchat.cli.save_profile import pull_command, save_profile
from specchat.hub.catalog import CARDS
from specchat.hub.machine import CPU, Device, Machine, memory_bandwidth, simulated, this_machine
from specchat.hub.memory_plan import GIB
from specchat.hub.recommend import CONTEXT, PURPOSES, Wish, profile_text, reasons, recommend

if TYPE_CHECKING:
    from specchat.hub.recommend import Pair

ALTERNATIVES = 2
EMBEDDED = "nothing of the catalog fits here; 'specchat demo' and the embedded models run in 1 GiB"


@click.command("recommend")
@click.option("--memory", type=Gigabytes(), help="As if there were a card of so many GB with a screen on it.")
@click.option("--for", "purpose", type=click.Choice(PURPOSES), default="chat", show_default=True, help="What for.")
@click.option("--ctx", "context", type=Tokens(), default=CONTEXT, show_default=True, help="Longest text, in tokens.")
@click.option("--cpu", "is_cpu", is_flag=True, help="Leave cards out.")
@click.option("--cards", "is_table", is_flag=True, help="Print the best pair for every size of card, as Markdown.")
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
    is_table: bool,
    is_forced: bool,
    is_json: bool,
) -> None:
    """Choose a target and who drafts for it, by the memory that is free now; weights and text are both counted.

    Nothing is downloaded. Without a card, main memory and its bandwidth decide, which is measured for a second.
    """
    if is_table:
        click.echo("\n".join(card_table()))
        return
    machine = None if memory else look_around()
    device = _device(machine, memory, is_cpu=is_cpu)
    pairs = for_device(device, Wish(purpose, context), machine)
    if is_json:
        click.echo(json.dumps(_as_json(device, pairs), indent=1))
    elif pairs:
        click.echo("\n".join(_lines(device, pairs)))
    else:
        click.echo(f"{in_words(device)}: {EMBEDDED}")
    if save and pairs:
        path = save_profile(save, profile_text(pairs[0], save), is_forced=is_forced)
        print(f"written to {path}; use it with --profile {save}", file=sys.stderr)


def card_table() -> Iterator[str]:
    """The best pair for every size of card and every purpose; docs/models.md holds this table."""
    yield "| card | for | target | held in | who drafts | GiB at 8k |"
    yield "|---|---|---|---|---|---|"
    for card in CARDS:
        for purpose in PURPOSES:
            best = recommend(simulated(card), Wish(purpose))[0]
            tight = ", tight" * best.is_tight
            cells = (f"{card} GB", purpose, best.entry.id, best.way, best.drafting.id or "copies of the text")
            yield f"| {' | '.join(cells)} | {best.need.total / GIB:.1f}{tight} |"


def look_around() -> Machine:
    """This machine; where main memory decides, its bandwidth is measured, and that is said before."""
    machine = this_machine()
    if machine.best.is_card:
        return machine
    print("no card found; measuring the bandwidth of main memory (a second at most)", file=sys.stderr)
    return replace(machine, bytes_per_second=memory_bandwidth())


def _device(machine: Machine | None, memory: float | None, *, is_cpu: bool) -> Device:
    if machine is None:
        return simulated(memory or 0)
    return machine.cpu if is_cpu else machine.best


def for_device(device: Device, wish: Wish, machine: Machine | None) -> list[Pair]:
    """The pairs that fit, the best first. Bandwidth is that of main memory, so a card is judged without."""
    skills = machine.skills if machine else ()
    return recommend(device, wish, skills, machine.bytes_per_second if machine and device.kind == CPU else None)


def in_words(device: Device) -> str:
    """A device and what of it is free."""
    return f"{device.name}: {device.free / GIB:.1f} of {device.total / GIB:.1f} GiB free"


def described(pair: Pair) -> Iterator[str]:
    """A pair in a line, and below it why."""
    drafter = pair.drafting.id or "copies of its own text"
    yield f"{pair.entry.id} ({pair.way}) with {drafter}"
    yield from (f"    {line}" for line in reasons(pair))
    yield f"    licence: {pair.entry.licence}"


def _lines(device: Device, pairs: list[Pair]) -> Iterator[str]:
    best, *others = pairs[: 1 + ALTERNATIVES]
    yield in_words(device)
    if not device.is_card:
        yield "without a card expect small models and few tokens a second; 'specchat bench' says what guessing brings"
    for label, pair in (("best", best), *(("or", other) for other in others)):
        first, *why = described(pair)
        yield ""
        yield f"{label:<5}{first}"
        yield from (f" {line}" for line in why)
    yield ""
    yield f"fetch it   {pull_command(best)}"
    yield "profile    (--save NAME writes it)"
    yield ""
    yield from profile_text(best, "mine").splitlines()


def _as_json(device: Device, pairs: list[Pair]) -> dict[str, object]:
    return {
        "device": asdict(device),
        "pairs": [
            {
                "target": pair.entry.id,
                "weights": pair.way,
                "drafter": {"kind": pair.drafting.kind, "id": pair.drafting.id},
                "context": pair.context,
                "embedding": "cpu" if pair.embeddings_on_cpu else "auto",
                "bytes": {**asdict(pair.need), "total": pair.need.total},
                "is_tight": pair.is_tight,
                "plain_tokens_per_second": pair.plain_speed,
                "reasons": list(reasons(pair)),
                "profile": profile_text(pair, "mine"),
            }
            for pair in pairs[: 1 + ALTERNATIVES]
        ],
    }
