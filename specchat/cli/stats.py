"""`specchat stats`: what guessing has brought so far, summed over the history. Reads it only; no engine is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import click

from specchat.chat.events import Totals
from specchat.chat.history import HistoryReader, StoredTurn
from specchat.host.protocol import totals_from_json
from specchat.host.spawn import history_path

NOTHING = "nothing was answered yet"


@dataclass
class Sum:
    """All answers with one variant."""

    variant: str
    answers: int = 0
    tokens: int = 0
    steps: int = 0
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
        self.drafted += totals.drafted
        self.seconds += totals.decode_seconds
        self.accepted.update(totals.accepted)
        if totals.plain_seconds:
            self.priced_seconds += totals.decode_seconds
            self.plain_seconds += totals.tokens * totals.plain_seconds

    def cells(self) -> list[str]:
        """A row of the table."""
        held = ", ".join(f"{name} {count}" for name, count in self.accepted.most_common() if count)
        return [
            self.variant,
            str(self.answers),
            str(self.tokens),
            f"{self.tokens / self.seconds:.0f}" if self.seconds else "",
            f"{self.tokens / self.steps:.2f}" if self.steps else "",
            f"{self.plain_seconds / self.priced_seconds:.2f}" if self.priced_seconds else "",
            f"{self.accepted.total() / self.drafted:.0%}" if self.drafted else "",
            held,
        ]


def summed(turns: Iterable[StoredTurn]) -> list[Sum]:
    """Answers by variant, the most used first, and all of them; those without a token are left out."""
    sums, everything = dict[str, Sum](), Sum("all")
    for turn in turns:
        totals = totals_from_json(turn.totals)
        if totals.tokens:
            sums.setdefault(turn.answered.variant, Sum(turn.answered.variant)).add(totals)
            everything.add(totals)
    ordered = sorted(sums.values(), key=lambda each: -each.tokens)
    return [*ordered, everything] if len(ordered) > 1 else ordered


def as_table(sums: Sequence[Sum]) -> str:
    """Columns that stand below each other."""
    head = ["variant", "answers", "tokens", "tokens/s", "tokens a pass", "x plain", "accepted", "who guessed them"]
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


@click.command()
def stats() -> None:
    """What guessing ahead has brought: tokens, speed against plain decoding, and who guessed right.

    Summed over all kept conversations; `x plain` compares with the measured cost of a plain pass.
    """
    path = history_path()
    if not path.is_file():
        print(NOTHING)
        return
    reader = HistoryReader(path)
    try:
        sums = summed(_turns(reader))
    finally:
        reader.close()
    print(as_table(sums) if sums else NOTHING)
