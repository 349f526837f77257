"""`specchat bench loops`: how fast drafters are with tool calls, and with answers after the result of a tool."""

from __future__ import annotations

from typing import Any

import click

from specchat.cli.bench import ALL, INTERRUPTED_EXIT_CODE, TEMPERATURES, parse_names, print_progress
from specchat.cli.completion import complete_drafters
from specchat.cli.loaded_engine import load_engine_here
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError
from specchat.profile import all_drafters


@click.command()
@click.option(
    "--drafters",
    "names",
    default=ALL,
    show_default=True,
    help="Drafters, separated by commas; auto is one.",
    shell_complete=complete_drafters,
)
@click.option("--temperatures", type=TEMPERATURES, default="0,0.8", show_default=True, help="Sampling temperatures.")
@click.option("--count", default=3, show_default=True, help="Number of loops.")
@click.option("--limit", default=96, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@profile_options
def loops(names: str, temperatures: tuple[float, ...], count: int, limit: int, threads: int, **options: Any) -> int:
    """Measure drafters in agent loops beside plain decoding: with calls of tools, and with answers after results.

    The loops are those of `specchat verify --loops`. Ctrl-C ends it with the samples so far.
    """
    chosen = parse_names("drafter", names, all_drafters())
    profile = resolve_profile(options)
    from specchat.bench.columns import as_table, group_samples
    from specchat.bench.combinations import Grid
    from specchat.bench.loop_speed import measure_loops
    from specchat.bench.measure import collect_until_interrupt, set_thread_count, split_by_availability

    engine = load_engine_here(profile)
    set_thread_count(threads)
    runnable, skipped = split_by_availability(engine, chosen)
    for reason in skipped.values():
        print_progress(reason)
    grid = Grid(runnable, temperatures=temperatures, max_tokens=limit)
    collected = collect_until_interrupt(measure_loops(engine, grid, count, print_progress))
    if not collected.samples:
        raise InputError("nothing was measured: no loop was begun")
    click.echo(as_table(group_samples(collected.samples, grid)))
    return 0 if collected.is_complete else INTERRUPTED_EXIT_CODE
