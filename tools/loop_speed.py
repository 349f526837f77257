"""How fast drafters are in agent loops: with a call of a tool, and with the answer after its result.

    python -m tools.loop_speed --target TARGET --drafters auto,suffix,eagle3 --count 3 --threads 1

The questions are those of the loops in `loop_check.py`: each must be answered by a call, its result by a text. Every
combination has a conversation of its own, and all of them are asked the same turn one after the other, beside plain
decoding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import click

from specchat.chat.request import Request
from specchat.chat.router import TOOL_CALL, TOOL_RESULT
from specchat.chat.session import Session
from specchat.chat.tools import NO_TOOL, SOME_TOOL
from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError
from specchat.loading.load_engine import Engine
from specchat.profile.drafter_names import all_drafters
from specchat_bench.columns import as_table, group_samples
from specchat_bench.combinations import PLAIN, Combination, Grid, Sample
from specchat_bench.command_options import parse_names
from specchat_bench.drafters_command import drafters_option, temperatures_option
from specchat_bench.latency import TimedAnswer, time_answer
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.measure import (
    collect_until_interrupt,
    measure_with_plain,
    session_for,
    set_thread_count,
    split_by_availability,
)
from tools.instrument import run_instrument
from tools.loop_check import FILES, TOOLS, AgentLoop, make_loops, results_for


def measure_loops(engine: Engine, grid: Grid, count: int, progress: Callable[[str], None]) -> Iterator[Sample]:
    """A sample of every combination for each call and each answer of the first `count` loops."""
    for temperature in grid.temperatures:
        for number, loop in enumerate(make_loops(count), start=1):
            progress(f"temperature {temperature:g}, loop {number} of {count}")
            with ExitStack() as stack:
                sessions = {
                    each.name: stack.enter_context(session_for(engine, each))
                    for each in grid.combinations("", temperature)
                }
                yield from _measure_loop(sessions, grid, loop, temperature)


def _measure_loop(sessions: dict[str, Session], grid: Grid, loop: AgentLoop, temperature: float) -> Iterator[Sample]:
    files, plain, asked = dict(FILES), sessions[PLAIN], 0

    def measure(request: Request, combination: Combination) -> TimedAnswer:
        session = sessions[combination.name]
        session.rewind(len(session.turns) - asked)  # plain decoding answers a turn more than once
        return time_answer(session.ask(replace(request, variant=combination.drafter)))

    for question in (turn.question for turn in loop.turns[:-1] if turn.question):
        call = Request(
            question, seed=loop.seed, temperature=temperature, max_tokens=grid.max_tokens, tools=TOOLS,
            tool_choice=SOME_TOOL,
        )  # fmt: skip
        yield from measure_with_plain(measure, call, grid.combinations(TOOL_CALL, temperature))
        asked += 1
        results = results_for(plain.turns[-1].tool_calls, files)
        answer = replace(call, text="", tool_choice=NO_TOOL, tool_results=results)
        yield from measure_with_plain(measure, answer, grid.combinations(TOOL_RESULT, temperature))
        asked += 1


@click.command("loop_speed")
@drafters_option
@temperatures_option
@click.option("--count", default=3, show_default=True, help="Number of loops.")
@click.option("--limit", default=96, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@profile_options
def loops(names: str, temperatures: tuple[float, ...], count: int, limit: int, threads: int, **options: Any) -> int:
    """Measure drafters in agent loops beside plain decoding: with calls of tools, and with answers after results.

    The loops are those of `tools.loop_check`. Ctrl-C ends it with the samples so far.
    """
    chosen = parse_names("drafter", names, all_drafters())
    engine = load_engine_here(resolve_profile(options))
    set_thread_count(threads)
    runnable, skipped = split_by_availability(engine, chosen)
    for reason in skipped.values():
        print_note(reason)
    grid = Grid(runnable, temperatures=temperatures, max_tokens=limit)
    collected = collect_until_interrupt(measure_loops(engine, grid, count, print_note))
    if not collected.samples:
        raise InputError("nothing was measured: no loop was begun")
    click.echo(as_table(group_samples(collected.samples, grid)))
    return 0 if collected.is_complete else INTERRUPTED_EXIT_CODE


if __name__ == "__main__":
    sys.exit(run_instrument(loops))
