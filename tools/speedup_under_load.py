"""The shown speed relative to plain decoding, and the true one, while other load comes and goes.

Processes that only compute (burners) are switched on or off at a random token of each answer. Every question is
answered by plain decoding, with drafts, and by plain decoding again, in a session of its own with the same seed; in all
three, the load changes at the same token of the same text. The truth is the mean decode time of both plain answers by
that of the drafted one. The two plain answers also show how far the truth itself is known on this machine.

    python -m tools.speedup_under_load --target starter --count 20
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click

from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
from specchat.bench.columns import markdown_table
from specchat.bench.latency import TimedAnswer, time_answer
from specchat.chat.events import MAX_SHOWN_ERROR, Event, Speedup, StepDone
from specchat.chat.request import Request
from specchat.cli.loaded_engine import load_engine_here
from specchat.loading.load_engine import Engine
from specchat.profile import load_profile

SEED = 7
TOLERANCE = 1.15


class Burners:
    """Processes that compute without end, all stopped or all running."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.processes = processes
        self.switch(is_on=False)

    def switch(self, *, is_on: bool) -> None:
        """Let them run, or stop them at once."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT if is_on else signal.SIGSTOP)


@contextmanager
def burners(count: int) -> Generator[Burners]:
    """Start this number of burners, stopped; they end with the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield Burners(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class LoadChange:
    """At which token of an answer the burners start, or stop."""

    at_token: int
    starts: bool


@dataclass(frozen=True)
class Comparison:
    """One question: the plain answer, the drafted one, and the plain one again."""

    before: TimedAnswer
    drafted: TimedAnswer
    after: TimedAnswer
    change: LoadChange

    @property
    def shown(self) -> Speedup | None:
        """What the footer shows; None for nothing."""
        return self.drafted.totals.speedup

    @property
    def true_factor(self) -> float:
        """Decode time of plain decoding by that of the drafted answer."""
        plain_seconds = (self.before.totals.decode_seconds + self.after.totals.decode_seconds) / 2
        return plain_seconds / self.drafted.totals.decode_seconds

    @property
    def truth_scatter(self) -> float:
        """The factor between the two plain answers, which should be 1."""
        return self.after.totals.decode_seconds / self.before.totals.decode_seconds

    @property
    def is_right(self) -> bool | None:
        """Whether the number is within 15 % of the truth, or the truth within 15 % of the shown range."""
        if self.shown is None:
            return None
        low, high = self.shown.interval if self.shown.error > MAX_SHOWN_ERROR else (self.shown.factor,) * 2
        return low / TOLERANCE <= self.true_factor <= high * TOLERANCE


def compare(engine: Engine, request: Request, change: LoadChange, load: Burners, variant: str) -> Comparison:
    """Answer plainly, with this variant, and plainly again."""
    before, drafted, after = (
        _answer(engine, replace(request, variant=name), change, load) for name in ("plain", variant, "plain")
    )
    return Comparison(before, drafted, after, change)


def _answer(engine: Engine, request: Request, change: LoadChange, load: Burners) -> TimedAnswer:
    load.switch(is_on=not change.starts)
    try:
        with engine.create_session() as session:
            return time_answer(_with_load(session.ask(request), change, load))
    finally:
        load.switch(is_on=False)


def _with_load(events: Iterator[Event], change: LoadChange, load: Burners) -> Iterator[Event]:
    tokens, is_changed = 0, False
    for event in events:
        if isinstance(event, StepDone):
            tokens += len(event.committed_tokens)
        if tokens >= change.at_token and not is_changed:
            is_changed = True
            load.switch(is_on=change.starts)
        yield event


def as_table(comparisons: Sequence[Comparison]) -> str:
    """A row for each answer, as Markdown."""
    rows = [_table_row(each) for each in comparisons]
    header = ["load", "at token", "tokens", "steps", "shown", "true", "plain, second by first", "within 15 %"]
    return markdown_table(header, rows)


def _table_row(comparison: Comparison) -> list[str]:
    change, totals = comparison.change, comparison.drafted.totals
    is_right = {None: "-", True: "yes", False: "no"}[comparison.is_right]
    return [
        "on" if change.starts else "off", str(change.at_token), str(totals.completion_tokens), str(totals.steps),
        comparison.shown.text if comparison.shown else "-", f"{comparison.true_factor:.2f}",
        f"{comparison.truth_scatter:.2f}", is_right,
    ]  # fmt: skip


def summary(comparisons: Sequence[Comparison]) -> str:
    """The share of right answers, and what plain decoding reads for itself."""
    shown = [each for each in comparisons if each.is_right is not None]
    single = [each for each in shown if each.shown and each.shown.error <= MAX_SHOWN_ERROR]
    plain = [answer.totals for each in comparisons for answer in (each.before, each.after)]
    readings = sorted(each.plain_decode_seconds / each.decode_seconds for each in plain)
    same = sum(each.before.text == each.drafted.text == each.after.text for each in comparisons)
    known = [each for each in shown if 1 / TOLERANCE <= each.truth_scatter <= TOLERANCE]
    return "\n".join(
        [
            f"right: {_count(shown)} of {len(shown)} shown factors, {_count(single)} of {len(single)} single numbers",
            f"right where the two plain answers agree within 15 %: {_count(known)} of {len(known)}",
            f"without a factor: {len(comparisons) - len(shown)}",
            f"plain decoding reads {readings[0]:.3f} to {readings[-1]:.3f} for itself",
            f"equal texts: {same} of {len(comparisons)}",
        ]
    )


def _count(comparisons: Sequence[Comparison]) -> int:
    return sum(bool(each.is_right) for each in comparisons)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--target", default="starter", show_default=True, help="the target model")
@click.option("--variant", default="auto", show_default=True, help="the drafter that is compared with plain decoding")
@click.option("--count", default=20, show_default=True, help="number of questions")
@click.option("--limit", default=100, show_default=True, help="most tokens of an answer")
@click.option("--temperature", default=0.0, show_default=True, help="sampling temperature")
@click.option("--burners", "burner_count", default=os.cpu_count() or 1, show_default="CPUs", help="number of burners")
def main(target: str, variant: str, count: int, limit: int, temperature: float, burner_count: int) -> None:
    """Print the table and the summary."""
    engine, generator = load_engine_here(load_profile("chat").override({"models.target": target})), random.Random(SEED)
    questions = [request for requests in BUILTIN_REQUESTS.values() for request in requests]
    generator.shuffle(questions)
    comparisons = list[Comparison]()
    with burners(burner_count) as load:
        for number in range(count + 1):
            request = replace(
                questions[number % len(questions)], max_tokens=limit, seed=SEED + number, temperature=temperature
            )
            change = LoadChange(generator.randrange(limit // 8, limit * 3 // 4), starts=number % 2 == 0)
            comparisons.append(compare(engine, request, change, load, variant))
    del comparisons[0]  # warms up
    print(f"{as_table(comparisons)}\n\n{summary(comparisons)}")


if __name__ == "__main__":
    main()
