"""Every variant on the same prompts: what it brings, what it costs, and whether the text stayed the same.

A row is one variant on one kind of prompt at one temperature. Plain decoding is measured beside it on every prompt, so
its ratio does not depend on how busy the machine was a minute ago.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specchat.assemble import Engine
from specchat.chat.events import Failed, Finished, StepDone, Text, Totals
from specchat.chat.request import Request
from specchat.errors import SpecchatError

SEED = 7
DEPTHS_SHOWN = 4


@dataclass(frozen=True)
class Answer:
    """One answer of one variant: its text, its steps, its sums."""

    text: str
    steps: tuple[StepDone, ...]
    totals: Totals


class Refusing(Protocol):
    """A row whose variant may not be able to run."""

    variant: str
    refused: str


@dataclass
class Row:
    """One variant on prompts of one kind at one temperature."""

    variant: str
    kind: str
    temperature: float
    answers: list[Answer] = field(default_factory=list[Answer])
    plain: list[Answer] = field(default_factory=list[Answer])
    refused: str = ""  # why it could not run

    @property
    def tokens_per_pass(self) -> float:
        """Tokens by passes of the target, over all answers."""
        return total_of(self.answers, "tokens") / max(total_of(self.answers, "steps"), 1)

    @property
    def times_plain(self) -> float:
        """Speed of decoding against plain decoding of the same prompts; above 1 is faster."""
        return seconds_per_token(self.plain) / seconds_per_token(self.answers)

    @property
    def draft_cost(self) -> float:
        """Seconds of drafting in a step by seconds of a plain pass."""
        drafting = sum(answer.totals.draft_seconds for answer in self.answers) / max(total_of(self.answers, "steps"), 1)
        return drafting / seconds_per_token(self.plain)

    @property
    def same_text(self) -> int:
        """Answers that are equal to those of plain decoding."""
        return sum(ours.text == plain.text for ours, plain in zip(self.answers, self.plain, strict=True))

    def acceptance_at(self, depth: int) -> float | None:
        """How often a guess at this depth held, where one was made."""
        tried, kept = Counter[int](), Counter[int]()
        for answer in self.answers:
            for step in answer.steps:
                tried.update(range(1, depth_of(step) + 1))
                kept.update(range(1, len(step.committed)))
        return kept[depth] / tried[depth] if tried[depth] else None


def depth_of(step: StepDone) -> int:
    """How deep the tree of a step was; 0 for a bare root."""
    depths = [0]
    for parent in step.parents:
        depths.append(depths[parent] + 1)
    return max(depths)


def sweep(
    engine: Engine,
    variants: Sequence[str],
    prompts: Mapping[str, Sequence[Request]],
    temperatures: Sequence[float],
    limit: int,
    progress: Callable[[str], None] = lambda _what: None,
) -> Iterator[Row]:
    """Rows in the order of kinds, temperatures and variants; a variant that cannot run says why."""
    for kind, requests in prompts.items():
        for temperature in temperatures:
            rows = [Row(variant, kind, temperature) for variant in variants]
            for number, request in enumerate(requests, start=1):
                asked = replace(request, temperature=temperature, seed=SEED, max_tokens=limit)
                for row in rows:
                    progress(f"{kind} T={temperature:g} {number}/{len(requests)} {row.variant}")
                    _measure(engine, row, asked)
            yield from rows


def _measure(engine: Engine, row: Row, request: Request) -> None:
    if row.refused:
        return
    plain = ask(engine, replace(request, variant="plain"))
    try:
        answer = ask(engine, replace(request, variant=row.variant))
    except SpecchatError as error:
        row.refused = str(error)
        return
    row.plain.append(plain)
    row.answers.append(answer)


def ask(engine: Engine, request: Request) -> Answer:
    """One answer in a conversation of its own; SpecchatError when it cannot be made."""
    text, steps = list[str](), list[StepDone]()
    with engine.session() as session:
        for event in session.ask(request):
            match event:
                case Text(text=piece):
                    text.append(piece)
                case StepDone():
                    steps.append(event)
                case Failed(message=message):
                    raise SpecchatError(message)
                case Finished(totals=totals):
                    return Answer("".join(text), tuple(steps), totals)
    raise AssertionError("an answer that neither finished nor failed")


def as_table(rows: Sequence[Row]) -> str:
    """Rows as Markdown."""
    head = ["variant", "kind", "T", "tokens per pass", "x plain", "draft / pass"]
    head += [f"guess {depth}" for depth in range(1, DEPTHS_SHOWN + 1)] + ["same text"]
    return markdown(head, [_cells(row) for row in rows if not row.refused], refusals(rows))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()) -> str:
    """A table, and lines below it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + (["", *below] if below else []))


def refusals(rows: Sequence[Refusing]) -> list[str]:
    """Who could not run, and why; each once."""
    return list(dict.fromkeys(f"{row.variant}: {row.refused}" for row in rows if row.refused))


def _cells(row: Row) -> list[str]:
    shares = [row.acceptance_at(depth) for depth in range(1, DEPTHS_SHOWN + 1)]
    return [
        row.variant,
        row.kind,
        f"{row.temperature:g}",
        f"{row.tokens_per_pass:.2f}",
        f"{row.times_plain:.2f}",
        f"{row.draft_cost:.2f}",
        *("" if share is None else f"{share:.0%}" for share in shares),
        f"{row.same_text} of {len(row.answers)}",
    ]


def total_of(answers: Sequence[Answer], name: str) -> int:
    """One of the totals, summed over answers."""
    return sum(getattr(answer.totals, name) for answer in answers)


def seconds_per_token(answers: Sequence[Answer]) -> float:
    """Of decoding, over all answers."""
    return sum(answer.totals.decode_seconds for answer in answers) / max(total_of(answers, "tokens"), 1)
