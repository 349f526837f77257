"""`specchat bench drafters`: every drafter beside plain decoding, as a table, CSV and JSON; measured here and now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError
from specchat.profile.drafter_names import all_drafters
from specchat.profile.keys import MAX_DRAFT_TOKENS, MAX_TEMPERATURE, REQUEST_KINDS
from specchat_bench.command_options import ALL, PROMPTS, complete_drafters, parse_names
from specchat_bench.loaded_engine import load_engine_here

if TYPE_CHECKING:
    from specchat.chat.request import Request
    from specchat_bench.sample_store import SampleStore

DEFAULT_COLUMNS = "default"
Number = TypeVar("Number", int, float)


class NumberList(click.ParamType, Generic[Number]):
    """Numbers separated by commas, each within bounds."""

    name = "numbers"

    def __init__(self, parse_number: Callable[[str], Number], lowest: Number, highest: Number) -> None:
        self.parse_number, self.lowest, self.highest = parse_number, lowest, highest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Number, ...]:
        """Each number once, in the given order."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(dict.fromkeys(self.parse_number(word) for word in str(value).split(",")))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers such as 4,8,16", param, ctx)
        if wrong := [number for number in numbers if not self.lowest <= number <= self.highest]:
            self.fail(f"{wrong[0]} does not lie between {self.lowest} and {self.highest}", param, ctx)
        return numbers


LIMITS = NumberList(int, 0, MAX_DRAFT_TOKENS)

drafters_option = click.option(
    "--drafters",
    "names",
    default=ALL,
    show_default=True,
    help="Drafters, separated by commas; auto is one.",
    shell_complete=complete_drafters,
)
temperatures_option = click.option(
    "--temperatures", type=NumberList(float, 0, MAX_TEMPERATURE), default="0,0.8", show_default=True,
    help="Sampling temperatures.",
)  # fmt: skip


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@drafters_option
@click.option("--budgets", type=LIMITS, default="0", show_default=True, help="Draft tokens a pass; 0: the profile's.")
@click.option("--widths", type=LIMITS, default="0", show_default=True, help="Draft tokens a depth; 0: no limit.")
@temperatures_option
@click.option("--kind", "kinds", type=click.Choice(REQUEST_KINDS), multiple=True, help="Only prompts of this kind.")
@click.option("--count", default=3, show_default=True, help="Prompts of each kind.")
@click.option("--limit", default=120, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@click.option("--columns", default=DEFAULT_COLUMNS, show_default=True, help="Columns of the table, or 'all'.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything to this file, as JSON.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write all columns to this file, as CSV.")
@click.option("--restart", is_flag=True, help="Discard the samples of an interrupted bench.")
@profile_options
def drafters(
    prompts: Path | None,
    names: str,
    budgets: tuple[int, ...],
    widths: tuple[int, ...],
    temperatures: tuple[float, ...],
    kinds: tuple[str, ...],
    count: int,
    limit: int,
    threads: int,
    columns: str,
    json_file: Path | None,
    csv_file: Path | None,
    restart: bool,
    **options: Any,
) -> int:
    """Measure every combination of drafter, budget, width and temperature beside plain decoding.

    PROMPTS is a file of JSON lines with `turns`, or with `instruction` and `before`, or a folder of such files; a file
    named after a kind (edit.jsonl) says what its prompts are. Without it, built-in prompts are used. Ctrl-C ends the
    bench with the samples so far, and the same command resumes it.
    """
    chosen_drafters = parse_names("drafter", names, all_drafters())
    column_names = _parse_columns(columns)
    check_output_paths(json_file, csv_file)
    from specchat_bench.bench_output import BenchReport, bench_metadata
    from specchat_bench.columns import group_samples
    from specchat_bench.combinations import Grid
    from specchat_bench.measure import engine_measurer, open_store, run_bench, set_thread_count, split_by_availability

    profile = resolve_profile(options)
    requests = _requests(profile, prompts, kinds, count)
    engine = load_engine_here(profile)
    set_thread_count(threads)
    runnable, skipped = split_by_availability(engine, chosen_drafters)
    for reason in skipped.values():
        print_note(reason)
    grid = Grid(runnable, budgets, widths, temperatures, limit)
    store = open_store(engine, grid, restart=restart)
    collected = run_bench(engine_measurer(engine), grid, requests, count, store, print_note)
    metadata = {**bench_metadata(engine, grid, count), "is_complete": collected.is_complete}
    report = BenchReport(group_samples(collected.samples, grid), column_names, skipped, metadata)
    click.echo(report.to_text())
    report.write(json_file, csv_file)
    return _finish(store, is_complete=collected.is_complete)


def check_output_paths(*paths: Path | None) -> None:
    """Refuse a path that cannot be written now, not after an hour of measuring."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(f"{path}: its folder does not exist")


def _parse_columns(text: str) -> tuple[str, ...]:
    from specchat_bench.columns import COLUMNS
    from specchat_bench.columns import DEFAULT_COLUMNS as TABLE_COLUMNS

    return TABLE_COLUMNS if text == DEFAULT_COLUMNS else parse_names("column", text, COLUMNS)


def _requests(profile: Any, prompts: Path | None, kinds: Sequence[str], count: int) -> Mapping[str, Sequence[Request]]:
    from specchat_bench.measure import requests_by_kind

    known = requests_by_kind(profile, prompts, count)
    requests = {kind: known[kind] for kind in kinds or known if kind in known}
    if not requests:
        raise InputError(f"no prompt of such a kind there; there are {', '.join(known)}")
    return requests


def _finish(store: SampleStore, *, is_complete: bool) -> int:
    """The exit code. The samples of an interrupted bench stay for the next one."""
    if is_complete:
        store.discard()
        return 0
    print_note(f"interrupted; {len(store)} samples are stored, and the same command resumes the bench")
    return INTERRUPTED_EXIT_CODE
