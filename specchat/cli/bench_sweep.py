"""`specchat bench sweep`: drafter x budget x width x temperature, as a table, CSV, JSON and a picture."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from specchat.cli.bench_prompts import PROMPTS
from specchat.cli.options import chosen_profile, profile_options
from specchat.errors import InputError, ProfileError, UsageError
from specchat.profile import KINDS, every_guesser
from specchat.profile.keys import HOTTEST, WIDEST_BUDGET
from specchat.profile.validation import nearest

if TYPE_CHECKING:
    from specchat.assemble import Engine
    from specchat.bench.latency_host import Waited
    from specchat.bench.sweep import Asker, Collected
    from specchat.bench.sweep_cells import Grid
    from specchat.bench.sweep_store import Store
    from specchat.chat.request import Request

ALL = "all"
INTERRUPTED = 130
Number = TypeVar("Number", int, float)


class Numbers(click.ParamType, Generic[Number]):
    """Numbers with commas between them, each within bounds."""

    name = "numbers"

    def __init__(self, kind: Callable[[str], Number], lowest: Number, highest: Number) -> None:
        self.kind, self.lowest, self.highest = kind, lowest, highest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Number, ...]:
        """Each number once, in the order in which they were given."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(dict.fromkeys(self.kind(word) for word in str(value).split(",")))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers such as 4,8,16", param, ctx)
        if wrong := [number for number in numbers if not self.lowest <= number <= self.highest]:
            self.fail(f"{wrong[0]} does not lie between {self.lowest} and {self.highest}", param, ctx)
        return numbers


BUDGETS, WIDTHS = Numbers(int, 1, WIDEST_BUDGET), Numbers(int, 0, WIDEST_BUDGET)
TEMPERATURES = Numbers(float, 0, HOTTEST)


def talk(what: str) -> None:
    """Progress is talk."""
    print(what, file=sys.stderr)


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--drafters", default=ALL, show_default=True, help="Who guesses, with commas between them.")
@click.option("--budgets", type=BUDGETS, default="4,8,16", show_default=True, help="Most guesses in a pass.")
@click.option(
    "--widths", type=WIDTHS, default="0", show_default=True, help="Most guesses of each depth; 0: as it likes."
)
@click.option("--temperatures", type=TEMPERATURES, default="0,0.8", show_default=True, help="How lively.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only prompts of this kind.")
@click.option("--count", default=3, show_default=True, help="Prompts of each kind.")
@click.option("--limit", default=120, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything to this file, as JSON.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write a line for each combination, as CSV.")
@click.option("--picture", type=click.Path(path_type=Path), help="Draw it: a file that ends in .png or .svg.")
@click.option("--client", is_flag=True, help="Then ask the engine process as well, and time it from outside.")
@click.option("--fresh", is_flag=True, help="Forget what an interrupted sweep has kept.")
@profile_options
def sweep(
    prompts: Path | None,
    drafters: str,
    budgets: tuple[int, ...],
    widths: tuple[int, ...],
    temperatures: tuple[float, ...],
    kinds: tuple[str, ...],
    count: int,
    limit: int,
    threads: int,
    json_file: Path | None,
    csv_file: Path | None,
    picture: Path | None,
    client: bool,
    fresh: bool,
    **options: Any,
) -> int:
    """Measure every combination of drafter, budget, width and temperature beside plain decoding.

    PROMPTS is a file of JSON lines as for `bench`, or a folder of them; a file that is called as a kind (edit.jsonl)
    says what its prompts are. Without it, a few questions of our own are asked. Ctrl-C ends it with what there is, and
    the same command goes on from there.
    """
    names = chosen_drafters(drafters)
    check_places(json_file, csv_file, picture)
    if picture is not None:
        from specchat.bench.sweep_plot import check_picture

        check_picture(picture)
    from specchat.assemble import load_engine
    from specchat.bench.report import threads as use_threads
    from specchat.bench.sweep import by_kind, engine_asker
    from specchat.bench.sweep_cells import Grid
    from specchat.bench.sweep_output import Report

    profile = chosen_profile(options)
    asked = {kind: each for kind, each in by_kind(profile, prompts, count).items() if not kinds or kind in kinds}
    if not asked:
        raise InputError(f"no prompt of such a kind there; there are {', '.join(by_kind(profile, prompts, 1))}")
    engine = load_engine(profile)
    use_threads(threads)
    runnable, skipped = who_can(engine, names)
    for why in skipped.values():
        talk(why)
    grid = Grid(runnable, budgets, widths, temperatures, limit)
    store = store_of(engine, grid, fresh=fresh)
    collected = measure(engine_asker(engine), grid, asked, count, store)
    report = Report(collected.samples, grid, skipped, collected.is_whole, _about(engine, grid, count))
    if client and collected.is_whole:
        report = replace(report, waited=_waited(options, asked, count, limit))
    click.echo(report.text())
    report.write(json_file, csv_file, picture)
    return ended(store, is_whole=collected.is_whole)


def check_places(*files: Path | None) -> None:
    """InputError now rather than after an hour of measuring, for a file in a folder that is not there."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise InputError(f"{file}: its folder is not there")


def chosen_drafters(words: str) -> tuple[str, ...]:
    """The names that were asked for; UsageError for one that nobody has."""
    known = every_guesser()
    names = tuple(known) if words == ALL else tuple(word.strip() for word in words.split(","))
    for name in names:
        if name not in known:
            raise UsageError(f"unknown drafter {name!r};{nearest(name, known)} known are {', '.join(known)}")
    return names


def who_can(engine: Engine, names: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Those who can guess with the loaded models, and why the others cannot."""
    from specchat.bench.sweep import at_hand
    from specchat.chat.router import check_at_hand

    there, skipped = frozenset({"plain", *at_hand(engine)}), dict[str, str]()
    for name in names:
        try:
            check_at_hand(name, there)
        except ProfileError as error:
            skipped[name] = str(error)
    return tuple(name for name in names if name not in skipped), skipped


def store_of(engine: Engine, grid: Grid, *, fresh: bool) -> Store:
    """What an earlier sweep of these models, begun on this machine and not ended, has kept."""
    import torch

    from specchat.bench.sweep_store import Store, store_path
    from specchat.paths import cache_folder

    voice = engine.voice
    costs = voice.costs.path.stem if voice.costs.path else ""
    asked = asdict(voice.profile) | {"name": "", "description": ""}
    depends = {"costs": costs, "limit": grid.limit, "threads": torch.get_num_threads(), "profile": asked}
    store = Store(store_path(cache_folder(), depends))
    if not fresh:
        return store
    store.discard()
    return Store(store.path)


def measure(ask: Asker, grid: Grid, prompts: Mapping[str, Sequence[Request]], count: int, store: Store) -> Collected:
    """Say what will be done, and do it as far as it is let. InputError when nothing came of it."""
    from specchat.bench.sweep import announcement, collect, sweep, warm_up

    total = sum(min(count, len(each)) for each in prompts.values())
    talk(announcement(warm_up(ask, grid, prompts), grid, total, len(store)))
    collected = collect(sweep(ask, grid, prompts, count, store, talk))
    if not collected.samples and collected.is_whole:
        raise InputError("nothing was measured: no prompt there could be answered")
    if not collected.samples:
        raise click.Abort
    return collected


def _waited(
    options: dict[str, Any], prompts: Mapping[str, Sequence[Request]], count: int, limit: int
) -> tuple[Waited, ...]:
    """What a client of the engine process sees; nothing, if Ctrl-C says that nobody wants to know."""
    from specchat.bench.latency_host import wait_for_host
    from specchat.cli.session_options import wish

    try:
        return tuple(wait_for_host(wish(options), prompts, count, limit, talk))
    except KeyboardInterrupt:
        return ()


def ended(store: Store, *, is_whole: bool) -> int:
    """The exit code; what an interrupted sweep kept is there for the next one."""
    if is_whole:
        store.discard()
        return 0
    talk(f"interrupted; {len(store)} answers are kept, and the same command goes on from there")
    return INTERRUPTED


def _about(engine: Engine, grid: Grid, count: int) -> dict[str, Any]:
    """What was measured, where and when, for those who read it later."""
    models, layout = engine.voice.profile.models, engine.voice.target.pool.layout
    return {
        "date": time.strftime("%Y-%m-%d"), "target": models.target, "draft": models.draft, "heads": list(models.heads),
        "device": str(layout.device), "dtype": str(layout.dtype).removeprefix("torch."), "machine": platform.machine(),
        "limit": grid.limit, "prompts_of_each_kind": count,
    }  # fmt: skip
