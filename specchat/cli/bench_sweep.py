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
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError, ProfileError, UsageError
from specchat.profile import REQUEST_KINDS, all_drafters
from specchat.profile.keys import MAX_DRAFT_TOKENS, MAX_TEMPERATURE
from specchat.profile.validation import did_you_mean

if TYPE_CHECKING:
    from specchat.assemble import Engine
    from specchat.bench.client_latency import ClientLatency
    from specchat.bench.sweep import MeasureRequest, SweepResult
    from specchat.bench.sweep_cells import Grid
    from specchat.bench.sweep_store import SampleStore
    from specchat.chat.request import Request

ALL_DRAFTERS = "all"
INTERRUPTED_EXIT_CODE = 130
Number = TypeVar("Number", int, float)


class NumberList(click.ParamType, Generic[Number]):
    """Numbers with commas between them, each within bounds."""

    name = "numbers"

    def __init__(self, parse_number: Callable[[str], Number], lowest: Number, highest: Number) -> None:
        self.parse_number, self.lowest, self.highest = parse_number, lowest, highest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Number, ...]:
        """Each number once, in the order in which they were given."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(dict.fromkeys(self.parse_number(word) for word in str(value).split(",")))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers such as 4,8,16", param, ctx)
        if wrong := [number for number in numbers if not self.lowest <= number <= self.highest]:
            self.fail(f"{wrong[0]} does not lie between {self.lowest} and {self.highest}", param, ctx)
        return numbers


BUDGETS, WIDTHS = NumberList(int, 1, MAX_DRAFT_TOKENS), NumberList(int, 0, MAX_DRAFT_TOKENS)
TEMPERATURES = NumberList(float, 0, MAX_TEMPERATURE)


def print_progress(message: str) -> None:
    """Progress is talk."""
    print(message, file=sys.stderr)


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--drafters", default=ALL_DRAFTERS, show_default=True, help="Who guesses, with commas between them.")
@click.option("--budgets", type=BUDGETS, default="4,8,16", show_default=True, help="Most guesses in a pass.")
@click.option(
    "--widths", type=WIDTHS, default="0", show_default=True, help="Most guesses of each depth; 0: as it likes."
)
@click.option("--temperatures", type=TEMPERATURES, default="0,0.8", show_default=True, help="How lively.")
@click.option("--kind", "kinds", type=click.Choice(REQUEST_KINDS), multiple=True, help="Only prompts of this kind.")
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
    names = parse_drafters(drafters)
    check_output_folders(json_file, csv_file, picture)
    if picture is not None:
        from specchat.bench.sweep_plot import check_plot_path

        check_plot_path(picture)
    from specchat.assemble import load_engine
    from specchat.bench.report import set_thread_count as use_threads
    from specchat.bench.sweep import engine_measurer, requests_by_kind
    from specchat.bench.sweep_cells import Grid
    from specchat.bench.sweep_output import SweepReport

    profile = resolve_profile(options)
    asked = {
        kind: each for kind, each in requests_by_kind(profile, prompts, count).items() if not kinds or kind in kinds
    }
    if not asked:
        raise InputError(
            f"no prompt of such a kind there; there are {', '.join(requests_by_kind(profile, prompts, 1))}"
        )
    engine = load_engine(profile)
    use_threads(threads)
    runnable, skipped = split_by_availability(engine, names)
    for why in skipped.values():
        print_progress(why)
    grid = Grid(runnable, budgets, widths, temperatures, limit)
    store = open_store(engine, grid, fresh=fresh)
    collected = run_sweep(engine_measurer(engine), grid, asked, count, store)
    report = SweepReport(collected.samples, grid, skipped, collected.is_complete, _run_metadata(engine, grid, count))
    if client and collected.is_complete:
        report = replace(report, waited=_measure_client_latency(options, asked, count, limit))
    click.echo(report.to_text())
    report.write(json_file, csv_file, picture)
    return finish_sweep(store, is_complete=collected.is_complete)


def check_output_folders(*paths: Path | None) -> None:
    """InputError now rather than after an hour of measuring, for a file in a folder that is not there."""
    for file in paths:
        if file is not None and not file.absolute().parent.is_dir():
            raise InputError(f"{file}: its folder is not there")


def parse_drafters(text: str) -> tuple[str, ...]:
    """The names that were asked for; UsageError for one that nobody has."""
    known = all_drafters()
    names = tuple(known) if text == ALL_DRAFTERS else tuple(word.strip() for word in text.split(","))
    for name in names:
        if name not in known:
            raise UsageError(f"unknown drafter {name!r};{did_you_mean(name, known)} known are {', '.join(known)}")
    return names


def split_by_availability(engine: Engine, names: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Those who can guess with the loaded models, and why the others cannot."""
    from specchat.bench.sweep import available_drafters
    from specchat.chat.router import check_available

    there, skipped = frozenset({"plain", *available_drafters(engine)}), dict[str, str]()
    for name in names:
        try:
            check_available(name, there)
        except ProfileError as error:
            skipped[name] = str(error)
    return tuple(name for name in names if name not in skipped), skipped


def open_store(engine: Engine, grid: Grid, *, fresh: bool) -> SampleStore:
    """What an earlier sweep of these models, begun on this machine and not ended, has kept."""
    import torch

    from specchat.bench.sweep_store import SampleStore, store_path
    from specchat.paths import cache_folder

    voice = engine.models
    costs = voice.costs.path.stem if voice.costs.path else ""
    asked = asdict(voice.profile) | {"name": "", "description": ""}
    depends = {"costs": costs, "limit": grid.max_tokens, "threads": torch.get_num_threads(), "profile": asked}
    store = SampleStore(store_path(cache_folder(), depends))
    if not fresh:
        return store
    store.discard()
    return SampleStore(store.path)


def run_sweep(
    ask_engine: MeasureRequest, grid: Grid, prompts: Mapping[str, Sequence[Request]], count: int, store: SampleStore
) -> SweepResult:
    """Say what will be done, and do it as far as it is let. InputError when nothing came of it."""
    from specchat.bench.sweep import collect_until_interrupt, estimate_text, run_combinations, warm_up

    total = sum(min(count, len(each)) for each in prompts.values())
    print_progress(estimate_text(warm_up(ask_engine, grid, prompts), grid, total, len(store)))
    collected = collect_until_interrupt(run_combinations(ask_engine, grid, prompts, count, store, print_progress))
    if not collected.samples and collected.is_complete:
        raise InputError("nothing was measured: no prompt there could be answered")
    if not collected.samples:
        raise click.Abort
    return collected


def _measure_client_latency(
    options: dict[str, Any], prompts: Mapping[str, Sequence[Request]], count: int, limit: int
) -> tuple[ClientLatency, ...]:
    """What a client of the engine process sees; nothing, if Ctrl-C says that nobody wants to know."""
    from specchat.bench.client_latency import measure_client_latency
    from specchat.cli.session_options import session_request

    try:
        return tuple(measure_client_latency(session_request(options), prompts, count, limit, print_progress))
    except KeyboardInterrupt:
        return ()


def finish_sweep(store: SampleStore, *, is_complete: bool) -> int:
    """The exit code; what an interrupted sweep kept is there for the next one."""
    if is_complete:
        store.discard()
        return 0
    print_progress(f"interrupted; {len(store)} answers are kept, and the same command goes on from there")
    return INTERRUPTED_EXIT_CODE


def _run_metadata(engine: Engine, grid: Grid, count: int) -> dict[str, Any]:
    """What was measured, where and when, for those who read it later."""
    models, layout = engine.models.profile.models, engine.models.target.pool.layout
    return {
        "date": time.strftime("%Y-%m-%d"), "target": models.target, "draft": models.draft, "heads": list(models.heads),
        "device": str(layout.device), "dtype": str(layout.dtype).removeprefix("torch."), "machine": platform.machine(),
        "limit": grid.max_tokens, "prompts_of_each_kind": count,
    }  # fmt: skip
