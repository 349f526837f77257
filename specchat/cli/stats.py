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
from specchat.chat.kinds import first_rule
from specchat.errors import UsageError
from specchat.host.protocol import request_from_json, totals_from_json
from specchat.host.spawn import history_path
from specchat.profile import Rule, load_profile

ALL = "all"
NOTHING = "nothing was answered yet"


@dataclass
class Sum:
    """All answers that have something in common: a variant, a task or a day."""

    name: str
    answers: int = 0
    tokens: int = 0
    steps: int = 0
    stepped: int = 0  # tokens of the answers whose steps are known; a server may not tell them
    drafted: int = 0
    seconds: float = 0.0
    priced_seconds: float = 0.0  # of the answers for which the cost of a plain pass is known
    plain_seconds: float = 0.0  # what those would have taken
    accepted: Counter[str] = field(default_factory=Counter[str])

    def add(self, totals: Totals) -> None:
        """One more answer."""
        self.answers += 1
        self.tokens += totals.tokens
        self.steps += totals.steps
        self.stepped += totals.tokens if totals.steps else 0
        self.drafted += totals.drafted
        self.seconds += totals.decode_seconds
        self.accepted.update(totals.accepted)
        if totals.plain_seconds:
            self.priced_seconds += totals.decode_seconds
            self.plain_seconds += totals.tokens * totals.plain_seconds

    @property
    def times_plain(self) -> float | None:
        """Speed against plain decoding; None where no answer knows the cost of a plain pass."""
        return self.plain_seconds / self.priced_seconds if self.priced_seconds else None

    @property
    def accepted_share(self) -> float | None:
        """Guesses that held among all; None when nobody guessed."""
        return self.accepted.total() / self.drafted if self.drafted else None

    def cells(self) -> list[str]:
        """A row of the table."""
        held = ", ".join(f"{name} {count}" for name, count in self.accepted.most_common() if count)
        times, share = self.times_plain, self.accepted_share
        return [
            self.name,
            str(self.answers),
            str(self.tokens),
            f"{self.tokens / self.seconds:.0f}" if self.seconds else "",
            f"{self.stepped / self.steps:.2f}" if self.steps else "",
            "" if times is None else f"{times:.2f}",
            "" if share is None else f"{share:.0%}",
            held,
        ]


def by_variant(turn: StoredTurn) -> str:
    """Who guessed."""
    return turn.answered.variant


def by_day(turn: StoredTurn) -> str:
    """When it was asked, where this machine is."""
    return time.strftime("%Y-%m-%d", time.localtime(turn.started))


def by_task(turn: StoredTurn) -> str:
    """The command that asked, or the kind of question that the shipped rules take it for."""
    try:
        request = request_from_json(turn.request)
    except UsageError:
        return "unknown"  # written by another specchat, with fields of its own
    rule = first_rule(_shipped_rules(), request, request.temperature or 0.0)
    return request.task or (rule.kind if rule else "chat")


WAYS: dict[str, Callable[[StoredTurn], str]] = {"variant": by_variant, "task": by_task, "day": by_day}


def summed(turns: Iterable[StoredTurn], way: str = "variant") -> list[Sum]:
    """Answers by what they have in common, and all of them; those without a token are left out.

    Days stand in their order, the others by their tokens, the most first.
    """
    sums, everything = dict[str, Sum](), Sum(ALL)
    for turn in turns:
        totals = totals_from_json(turn.totals)
        if totals.tokens:
            name = WAYS[way](turn)
            sums.setdefault(name, Sum(name)).add(totals)
            everything.add(totals)
    ordered = sorted(sums.values(), key=lambda each: each.name if way == "day" else -each.tokens)
    return [*ordered, everything] if len(ordered) > 1 else ordered


def as_table(sums: Sequence[Sum], way: str = "variant") -> str:
    """Columns that stand below each other."""
    head = [way, "answers", "tokens", "tokens/s", "tokens a pass", "x plain", "accepted", "who guessed them"]
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
def _shipped_rules() -> tuple[Rule, ...]:
    return load_profile("chat").routes


@click.command()
@click.option(
    "--by", "way", type=click.Choice(tuple(WAYS)), default="variant", show_default=True, help="A row for each."
)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw it there too: a .png or .svg file.")
def stats(way: str, picture: Path | None) -> None:
    """What guessing ahead has brought: tokens, speed against plain decoding, and who guessed right.

    Summed over all kept conversations; `x plain` compares with the measured cost of a plain pass.
    """
    if picture is not None:
        from specchat.bench.sweep_plot import check_picture

        check_picture(picture)
    path = history_path()
    if not path.is_file():
        print(NOTHING)
        return
    reader = HistoryReader(path)
    try:
        sums = summed(_turns(reader), way)
    finally:
        reader.close()
    print(as_table(sums, way) if sums else NOTHING)
    if picture is not None and sums:
        from specchat.cli.stats_picture import draw

        draw([each for each in sums if each.name != ALL], way, picture)
        print(f"drawn: {picture}")
