"""Is the shown "x plain" true while the load of the machine changes?

    python -m tools.load_changes PROMPTS --count 30 --limit 80 --burners 1

Other processes compute while an answer is decoded; they start and stop at given tokens. Before and after it, plain
decoding answers the same request with the same changes of load at the same tokens: its mean time is the truth, and the
difference between both runs shows how well the truth is known. The estimate never sees these runs.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from itertools import chain, cycle, zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import click

from specchat.chat.events import MAX_SHOWN_ERROR, Event, Speedup, StepDone
from specchat.chat.request import Request
from specchat.chat.session import Session
from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError, SpecchatError
from specchat.loading.load_engine import Engine
from specchat.profile.drafter_names import all_drafters
from specchat_bench.columns import markdown_table
from specchat_bench.command_options import PROMPTS, complete_drafters, parse_names
from specchat_bench.drafters_command import check_output_paths
from specchat_bench.latency import TimedAnswer, time_answer
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.measure import requests_by_kind
from tools import burner
from tools.instrument import run_instrument

TOLERANCE = 1.15  # between a shown factor and the truth
KNOWN_TRUTH_RATIO = 1.1  # between the two runs of plain decoding; beyond it the truth is not known well
CONVERSATION_ANSWERS = 4  # of one session; its comparisons serve the later ones
ALL_ANSWERS = "all"
SEED = 7


@dataclass(frozen=True)
class LoadPattern:
    """At which shares of an answer the other processes start (True) and stop (False)."""

    name: str
    changes: tuple[tuple[float, bool], ...]

    def is_busy(self, tokens: int, limit: int) -> bool:
        """Whether they run after so many tokens."""
        return [is_busy for share, is_busy in self.changes if tokens >= share * limit][-1]


LOAD_PATTERNS = (
    LoadPattern("calm", ((0.0, False),)),
    LoadPattern("busy", ((0.0, True),)),
    LoadPattern("on at a third", ((0.0, False), (1 / 3, True))),
    LoadPattern("off at a half", ((0.0, True), (0.5, False))),
    LoadPattern("on, off, on", ((0.0, True), (0.25, False), (0.6, True))),
    LoadPattern("on for a third", ((0.0, False), (1 / 3, True), (2 / 3, False))),
)


class Burners(AbstractContextManager["Burners"]):
    """Processes that load the machine while they are set to. They end with the context, and with this process."""

    def __init__(self, count: int) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="specchat-burners-")  # noqa: SIM115 - closed in __exit__
        self._file.write(b"\0")
        self._file.flush()
        self._flag = mmap.mmap(self._file.fileno(), 1)
        command = [sys.executable, "-I", str(Path(burner.__file__)), self._file.name, str(os.getpid())]
        self.processes = [subprocess.Popen(command) for _ in range(count)]

    def set_running(self, *, is_running: bool) -> None:
        self._flag[0] = int(is_running)

    def __exit__(self, *_error: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self._flag.close()
        self._file.close()


@dataclass(frozen=True)
class LoadAnswer:
    """An answer under a pattern of load, beside plain decoding under the same pattern before and after it."""

    pattern: str
    tokens: int
    shown: Speedup | None
    decode_seconds: float
    plain_seconds: tuple[float, float]  # of as many tokens
    plain_readings: tuple[float, ...]  # what the two runs of plain decoding say about themselves

    @property
    def true_factor(self) -> float:
        return sum(self.plain_seconds) / 2 / self.decode_seconds

    @property
    def is_truth_known(self) -> bool:
        return max(self.plain_seconds) <= KNOWN_TRUTH_RATIO * min(self.plain_seconds)

    @property
    def is_single_number(self) -> bool:
        return self.shown is not None and self.shown.error <= MAX_SHOWN_ERROR

    @property
    def ratio(self) -> float:
        """The shown factor, or the middle of the range, by the true one. 1 where nothing is shown."""
        return 1.0 if self.shown is None else self.shown.factor / self.true_factor

    @property
    def is_near(self) -> bool:
        return 1 / TOLERANCE <= self.ratio <= TOLERANCE

    @property
    def is_inside(self) -> bool:
        """Whether the truth lies in the interval of the shown factor."""
        return self.shown is not None and self.shown.interval[0] <= self.true_factor <= self.shown.interval[1]


def measure_answers(
    engine: Engine, requests: Iterable[Request], count: int, burners: Burners, progress: Callable[[str], None]
) -> Iterator[LoadAnswer]:
    """Answer under one pattern after the other, `count` times. Requests that cannot be answered are left out."""
    patterns, session, done = cycle(LOAD_PATTERNS), None, 0
    pattern = next(patterns)
    for request in requests:
        if done == count:
            break
        if done % CONVERSATION_ANSWERS == 0 or session is None:
            if session is not None:
                session.close()
            session = engine.create_session()
        try:
            answer = measure_answer(engine, session, request, pattern, burners)
        except SpecchatError as error:
            progress(f"left out: {error}")
            continue
        finally:
            burners.set_running(is_running=False)
        done += 1
        shown = answer.shown.text if answer.shown else "nothing"
        progress(f"{done}/{count} {pattern.name}: {shown} shown, {answer.true_factor:.2f} true")
        pattern = next(patterns)
        yield answer
    if session is not None:
        session.close()


def measure_answer(
    engine: Engine, session: Session, request: Request, pattern: LoadPattern, burners: Burners
) -> LoadAnswer:
    def run(session: Session, variant: str | None) -> TimedAnswer:
        limit, asked = request.max_tokens or 1, replace(request, variant=variant)
        answer = time_answer(with_load(session.ask(asked), pattern, limit, burners))
        session.rewind()
        return answer

    def run_plain() -> TimedAnswer:
        with engine.create_session() as plain_session:
            return run(plain_session, "plain")

    before, drafted, after = run_plain(), run(session, request.variant), run_plain()
    tokens, plain = drafted.totals.completion_tokens, (before.totals, after.totals)
    first, second = (each.decode_seconds / max(each.completion_tokens, 1) * tokens for each in plain)
    return LoadAnswer(
        pattern.name, tokens, drafted.totals.speedup, drafted.totals.decode_seconds, (first, second),
        tuple(each.plain_decode_seconds / each.decode_seconds for each in plain if each.plain_decode_seconds),
    )  # fmt: skip


def with_load(events: Iterable[Event], pattern: LoadPattern, limit: int, burners: Burners) -> Iterator[Event]:
    """The events of an answer; the burners run as the pattern says, from the prefill on."""
    tokens = 0
    burners.set_running(is_running=pattern.is_busy(0, limit))
    for event in events:
        yield event
        if isinstance(event, StepDone):
            tokens += len(event.committed_tokens)
            burners.set_running(is_running=pattern.is_busy(tokens, limit))


def as_table(answers: Sequence[LoadAnswer]) -> str:
    """One row for each pattern and one for all, as Markdown; only answers whose truth is known."""
    header = [
        "load", "answers", "plain runs differ", "numbers", "within 15 %", "ranges", "middle within 15 %",
        "truth in the interval", "nothing shown", "shown / true",
    ]  # fmt: skip
    known = [each for each in answers if each.is_truth_known]
    names = [*dict.fromkeys(each.pattern for each in answers), ALL_ANSWERS]
    groups: Mapping[str, list[LoadAnswer]] = {
        name: [each for each in known if name in (each.pattern, ALL_ANSWERS)] for name in names
    }
    left_out = {
        name: sum(name in (each.pattern, ALL_ANSWERS) for each in answers) - len(groups[name]) for name in names
    }
    return markdown_table(header, (_cells(name, left_out[name], group) for name, group in groups.items()))


def _cells(name: str, left_out: int, group: Sequence[LoadAnswer]) -> list[str]:
    shown = [each for each in group if each.shown is not None]
    numbers = [each for each in shown if each.is_single_number]
    ranges = [each for each in shown if not each.is_single_number]
    ratios = [each.ratio for each in shown]
    return [
        name, str(len(group)), str(left_out),
        str(len(numbers)), str(sum(each.is_near for each in numbers)),
        str(len(ranges)), str(sum(each.is_near for each in ranges)),
        f"{sum(each.is_inside for each in shown)} of {len(shown)}", str(len(group) - len(shown)),
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "",
    ]  # fmt: skip


def plain_line(answers: Sequence[LoadAnswer]) -> str:
    """What plain decoding says about itself."""
    readings = [reading for each in answers for reading in each.plain_readings]
    if not readings:
        return "plain decoding says nothing about itself"
    return f"plain decoding reads {min(readings):.2f} to {max(readings):.2f} in {len(readings)} answers"


@click.command("load_changes")
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--drafter", default="auto", show_default=True, help="The drafter.", shell_complete=complete_drafters)
@click.option("--count", default=30, show_default=True, help="Answers, each under one of six patterns of load.")
@click.option("--limit", default=100, show_default=True, help="Most tokens of an answer.")
@click.option(
    "--burners", "burner_count", type=click.IntRange(1), help="Processes that load the machine [as its cores]."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every answer to this file, as JSON.")
@profile_options
def load(
    prompts: Path | None,
    drafter: str,
    count: int,
    limit: int,
    burner_count: int | None,
    json_file: Path | None,
    **options: Any,
) -> int:
    """Compare the shown speedup with the truth while other programs start and stop.

    Processes that load the machine run during parts of each answer. Plain decoding of the same answer, before and after
    it and with the same changes of load at the same tokens, is the truth. PROMPTS are as for `specchat bench drafters`.
    """
    [drafter] = parse_names("drafter", drafter, all_drafters())
    check_output_paths(json_file, None)
    profile = resolve_profile(options)

    in_turn = chain.from_iterable(zip_longest(*requests_by_kind(profile, prompts, count).values()))
    requests = [replace(each, variant=drafter, seed=SEED, max_tokens=limit) for each in in_turn if each is not None]
    engine, answers, is_complete = load_engine_here(profile), list[LoadAnswer](), True
    with Burners(burner_count or os.cpu_count() or 1) as burners:
        try:
            for answer in measure_answers(engine, requests, count, burners, print_note):
                answers.append(answer)  # one by one: Ctrl-C keeps those before it
        except KeyboardInterrupt:
            is_complete = False
    if not answers:
        raise InputError("nothing was measured: no prompt there could be answered")
    click.echo(as_table(answers))
    click.echo(plain_line(answers))
    if json_file:
        json_file.write_text(json.dumps([asdict(each) for each in answers]), encoding="utf-8")
    return 0 if is_complete else INTERRUPTED_EXIT_CODE


if __name__ == "__main__":
    sys.exit(run_instrument(load))
