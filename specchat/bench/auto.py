"""Does `auto` cost the user anything? Plain and auto on the same prompts in turns, by kind of prompt.

Every prompt is answered plain, auto, auto, plain, each in a conversation of its own: the ratio of answers that stand
side by side does not depend on how busy the machine was a minute ago. What the chooser learnt stays with the engine, as
it does for a user.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from io import StringIO
from statistics import median

from specchat.assemble import Engine
from specchat.bench.interleaved import SEED, MeasuredAnswer, measure_answer
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.errors import SpecchatError

BOOTSTRAP_RESAMPLES = 2000  # of the bootstrap
CANDIDATES_PER_PROMPT = 6  # prompts read for each that is measured: some kinds bring files that no small window holds
CONFIDENCE = 0.95


@dataclass(frozen=True)
class AutoMeasurement:
    """One prompt at one temperature: seconds of decoding, prompt left out, and whether all four texts were equal."""

    kind: str
    temperature: float
    prompt_number: int
    tokens: int
    first_plain_seconds: float
    first_auto_seconds: float
    last_auto_seconds: float
    last_plain_seconds: float
    tokens_per_step: float
    is_same_text: bool

    @property
    def speedup(self) -> float:
        """How many times as fast auto was as plain."""
        return (self.first_plain_seconds + self.last_plain_seconds) / (self.first_auto_seconds + self.last_auto_seconds)


def group_by_kind(engine: Engine, requests: Iterator[Request], count: int) -> dict[str, list[Request]]:
    """At most `count` requests of each kind that the router tells; edits are asked for as `specchat edit` does."""
    found: dict[str, list[Request]] = {}
    for request in requests:
        asked = replace(request, task="edit") if request.files else request
        kind = choose_route(asked, engine.models.profile, frozenset({"plain", "auto"})).kind
        if len(found.setdefault(kind, [])) < count:
            found[kind].append(asked)
    return found


def measure_pairs(
    engine: Engine,
    prompts: Mapping[str, Sequence[Request]],
    temperatures: Sequence[float],
    max_tokens: int,
    count: int,
    progress: Callable[[str], None] = lambda _what: None,
) -> Iterator[AutoMeasurement]:
    """Plain, auto, auto, plain on the first `count` prompts of each kind that fit the window."""
    for kind, requests in prompts.items():
        for temperature in temperatures:
            done = 0
            for number, request in enumerate(requests, start=1):
                if done == count:
                    break
                asked, place = (
                    replace(request, temperature=temperature, seed=SEED, max_tokens=max_tokens),
                    f"{done + 1}/{count}",
                )
                try:
                    measured = _measure(engine, kind, number, asked)
                except SpecchatError as error:
                    progress(f"{kind} T={temperature:g} {place}: left out: {error}")
                    continue
                done += 1
                progress(f"{kind} T={temperature:g} {place}: {measured.speedup:.2f}")
                yield measured


def _measure(engine: Engine, kind: str, number: int, request: Request) -> AutoMeasurement:
    answers = [
        measure_answer(engine, replace(request, variant=variant)) for variant in ("plain", "auto", "auto", "plain")
    ]
    seconds = [_decode_seconds(answer) for answer in answers]
    return AutoMeasurement(
        kind, request.temperature or 0.0, number, answers[1].totals.completion_tokens,
        seconds[0], seconds[1], seconds[2], seconds[3], answers[1].totals.tokens_per_step,
        len({answer.text for answer in answers}) == 1,
    )  # fmt: skip


def _decode_seconds(answer: MeasuredAnswer) -> float:
    return answer.totals.decode_seconds


def bootstrap_interval(ratios: Sequence[float], rng: random.Random) -> tuple[float, float]:
    """Where the median of such ratios lies with 95 %, by drawing them again and again."""
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(BOOTSTRAP_RESAMPLES))
    tail = int(BOOTSTRAP_RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[tail], medians[-tail - 1]


def as_table(rows: Sequence[AutoMeasurement]) -> str:
    """Medians with their intervals, as Markdown."""
    lines = [
        "| kind | T | pairs | auto / plain | 95 % of medians | tokens per pass | same text |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, temperature in dict.fromkeys((row.kind, row.temperature) for row in rows):
        group = [row for row in rows if (row.kind, row.temperature) == (kind, temperature)]
        ratios = [row.speedup for row in group]
        low, high = bootstrap_interval(ratios, random.Random(SEED))
        lines.append(
            f"| {kind} | {temperature:g} | {2 * len(group)} | {median(ratios):.2f} | {low:.2f} to {high:.2f} "
            f"| {median(row.tokens_per_step for row in group):.2f} "
            f"| {sum(row.is_same_text for row in group)} of {len(group)} |"
        )
    return "\n".join(lines)


def as_csv(rows: Sequence[AutoMeasurement]) -> str:
    """Every row as it was measured."""
    text = StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(AutoMeasurement)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()
