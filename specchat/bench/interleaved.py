"""One variant beside plain decoding: both answer every request, in turns, whatever the machine does meanwhile.

So a ratio does not depend on how busy it was a minute ago. Knows the engine and requests; which requests, and what they
are about, is the business of those who measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specchat.assemble import Engine
from specchat.bench.latency import time_answer
from specchat.bench.markdown_table import markdown_table
from specchat.chat.events import StepDone, Totals
from specchat.chat.request import Request
from specchat.errors import SpecchatError

SEED = 7


@dataclass(frozen=True)
class MeasuredAnswer:
    """One answer of one variant: its text, its steps, its sums."""

    text: str
    steps: tuple[StepDone, ...]
    totals: Totals


@dataclass
class VariantRow:
    """A row: the answers of one variant, and those of plain decoding to the same requests."""

    variant: str
    answers: list[MeasuredAnswer] = field(default_factory=list[MeasuredAnswer], kw_only=True)
    plain_answers: list[MeasuredAnswer] = field(default_factory=list[MeasuredAnswer], kw_only=True)
    skip_reason: str = field(default="", kw_only=True)  # why it could not run

    def measure(self, engine: Engine, request: Request) -> MeasuredAnswer | None:
        """Let both answer. None from a variant that cannot run, which is not asked again."""
        if self.skip_reason:
            return None
        plain = measure_answer(engine, replace(request, variant="plain"))
        try:
            answer = measure_answer(engine, replace(request, variant=self.variant))
        except SpecchatError as error:
            self.skip_reason = str(error)
            return None
        self.plain_answers.append(plain)
        self.answers.append(answer)
        return answer

    @property
    def tokens_per_step(self) -> float:
        """Tokens by passes of the target, over all answers."""
        return total_of(self.answers, "tokens") / max(total_of(self.answers, "steps"), 1)

    @property
    def speedup(self) -> float:
        """Speed of decoding against plain decoding of the same requests; above 1 is faster."""
        return seconds_per_token(self.plain_answers) / seconds_per_token(self.answers)

    @property
    def identical_answers(self) -> int:
        """Answers that are equal to those of plain decoding."""
        return sum(ours.text == plain.text for ours, plain in zip(self.answers, self.plain_answers, strict=True))


def measure_answer(engine: Engine, request: Request) -> MeasuredAnswer:
    """One answer in a conversation of its own; SpecchatError when it cannot be made."""
    with engine.create_session() as session:
        heard = time_answer(session.ask(request))
    return MeasuredAnswer(heard.text, heard.steps, heard.totals)


def total_of(answers: Sequence[MeasuredAnswer], name: str) -> int:
    """One of the totals, summed over answers."""
    return sum(getattr(answer.totals, name) for answer in answers)


def seconds_per_token(answers: Sequence[MeasuredAnswer]) -> float:
    """Of decoding, over all answers."""
    return sum(answer.totals.decode_seconds for answer in answers) / max(total_of(answers, "tokens"), 1)


def table_with_skipped(header: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[VariantRow]) -> str:
    """A table, and below it who could not run, and why; each once."""
    refused = list(dict.fromkeys(f"{row.variant}: {row.skip_reason}" for row in rows if row.skip_reason))
    return "\n".join([markdown_table(header, cells), *(["", *refused] if refused else [])])
