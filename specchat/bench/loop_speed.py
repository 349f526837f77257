"""How fast drafters are in agent loops: with a call of a tool, and with the answer after its result.

The questions are those of the loops in `loop_check.py`: each must be answered by a call, its result by a text. Every
combination has a conversation of its own, and all of them are asked the same turn one after the other, beside plain
decoding. Knows no screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

from specchat.bench.combinations import PLAIN, Combination, Grid, Sample
from specchat.bench.latency import TimedAnswer, time_answer
from specchat.bench.loop_check import FILES, TOOLS, AgentLoop, make_loops, results_for
from specchat.bench.measure import measure_with_plain, session_for
from specchat.chat.request import Request
from specchat.chat.router import TOOL_CALL, TOOL_RESULT
from specchat.chat.session import Session
from specchat.chat.tools import NO_TOOL, SOME_TOOL
from specchat.loading.load_engine import Engine


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
