"""`specchat stats`: what guessing has brought so far, summed over the history. Reads it only; no engine is started."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import click

from specchat.chat.events import Totals
from specchat.chat.history import HistoryReader, StoredTurn
from specchat.chat.request_kinds import first_matching_rule
from specchat.errors import UsageError
from specchat.host.protocol import request_from_json, totals_from_json
from specchat.host.spawn import history_path
from specchat.profile import RouteRule, load_profile

ALL_ANSWERS = "all"
NO_ANSWERS_MESSAGE = "nothing was answered yet"


@dataclass
class AnswerTotals:
    """All answers that have something in common: a variant, a task or a day."""

    name: str
    answers: int = 0
    tokens: int = 0
    steps: int = 0
    tokens_with_steps: int = 0  # tokens of the answers whose steps are known; a server may not tell them
    draft_tokens: int = 0
    decode_seconds: float = 0.0
    compared_decode_seconds: float = 0.0  # of the answers for which the cost of a plain pass is known
    estimated_plain_seconds: float = 0.0  # what those would have taken
    accepted_by_drafter: Counter[str] = field(default_factory=Counter[str])

    def add(self, totals: Totals) -> None:
        """One more answer."""
        self.answers += 1
        self.tokens += totals.completion_tokens
        self.steps += totals.steps
        self.tokens_with_steps += totals.completion_tokens if totals.steps else 0
        self.draft_tokens += totals.draft_tokens
        self.decode_seconds += totals.decode_seconds
        self.accepted_by_drafter.update(totals.accepted_by_drafter)
        if totals.plain_step_seconds:
            self.compared_decode_seconds += totals.decode_seconds
            self.estimated_plain_seconds += totals.completion_tokens * totals.plain_step_seconds

    @property
    def speedup(self) -> float | None:
        """Speed against plain decoding; None where no answer knows the cost of a plain pass."""
        return self.estimated_plain_seconds / self.compared_decode_seconds if self.compared_decode_seconds else None

    @property
    def acceptance_rate(self) -> float | None:
        """Guesses that held among all; None when nobody guessed."""
        return self.accepted_by_drafter.total() / self.draft_tokens if self.draft_tokens else None

    def cells(self) -> list[str]:
        """A row of the table."""
        held = ", ".join(f"{name} {count}" for name, count in self.accepted_by_drafter.most_common() if count)
        times, share = self.speedup, self.acceptance_rate
        return [
            self.name,
            str(self.answers),
            str(self.tokens),
            f"{self.tokens / self.decode_seconds:.0f}" if self.decode_seconds else "",
            f"{self.tokens_with_steps / self.steps:.2f}" if self.steps else "",
            "" if times is None else f"{times:.2f}",
            "" if share is None else f"{share:.0%}",
            held,
        ]


def by_variant(turn: StoredTurn) -> str:
    """Who guessed."""
    return turn.answer.variant


def by_day(turn: StoredTurn) -> str:
    """When it was asked, where this machine is."""
    return time.strftime("%Y-%m-%d", time.localtime(turn.started))


def by_task(turn: StoredTurn) -> str:
    """The command that asked, or the kind of question that the shipped rules take it for."""
    try:
        request = request_from_json(turn.request)
    except UsageError:
        return "unknown"  # written by another specchat, with fields of its own
    rule = first_matching_rule(_shipped_rules(), request, request.temperature or 0.0)
    return request.task or (rule.kind if rule else "chat")


GROUPINGS: dict[str, Callable[[StoredTurn], str]] = {"variant": by_variant, "task": by_task, "day": by_day}


def sum_by_group(turns: Iterable[StoredTurn], grouping: str = "variant") -> list[AnswerTotals]:
    """Answers by what they have in common, and all of them; those without a token are left out.

    Days stand in their order, the others by their tokens, the most first.
    """
    sums, everything = dict[str, AnswerTotals](), AnswerTotals(ALL_ANSWERS)
    for turn in turns:
        totals = totals_from_json(turn.totals)
        if totals.completion_tokens:
            name = GROUPINGS[grouping](turn)
            sums.setdefault(name, AnswerTotals(name)).add(totals)
            everything.add(totals)
    ordered = sorted(sums.values(), key=lambda each: each.name if grouping == "day" else -each.tokens)
    return [*ordered, everything] if len(ordered) > 1 else ordered


def as_table(sums: Sequence[AnswerTotals], grouping: str = "variant") -> str:
    """Columns that stand below each other."""
    head = [grouping, "answers", "tokens", "tokens/s", "tokens a pass", "x plain", "accepted", "who guessed them"]
    lines = [head, *(each.cells() for each in sums)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _turns(reader: HistoryReader) -> Iterator[StoredTurn]:
    """Every turn once, however many conversations share it."""
    seen = set[str]()
    for thread in reader.threads():
        for turn in reader.turns(thread.tip):
            if turn.id not in seen:
                seen.add(turn.id)
                yield turn


@cache
def _shipped_rules() -> tuple[RouteRule, ...]:
    return load_profile("chat").routes


@click.command()
@click.option(
    "--by", "way", type=click.Choice(tuple(GROUPINGS)), default="variant", show_default=True, help="A row for each."
)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw it there too: a .png or .svg file.")
def stats(way: str, picture: Path | None) -> None:
    """What guessing ahead has brought: tokens, speed against plain decoding, and who guessed right.

    Summed over all kept conversations; `x plain` compares with the measured cost of a plain pass.
    """
    if picture is not None:
        from specchat.bench.sweep_plot import check_plot_path

        check_plot_path(picture)
    path = history_path()
    if not path.is_file():
        print(NO_ANSWERS_MESSAGE)
        return
    reader = HistoryReader(path)
    try:
        sums = sum_by_group(_turns(reader), way)
    finally:
        reader.close()
    print(as_table(sums, way) if sums else NO_ANSWERS_MESSAGE)
    if picture is not None and sums:
        from specchat.cli.stats_plot import draw_stats

        draw_stats([each for each in sums if each.name != ALL_ANSWERS], way, picture)
        print(f"drawn: {picture}")
