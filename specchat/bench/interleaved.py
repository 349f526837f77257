"""One variant beside plain decoding: both answer every request, in turns, whatever the machine does meanwhile.

So a ratio does not depend on how busy it was a minute ago. Knows the engine and requests; which requests, and what they
are about, is the business of those who measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specchat.assemble import Engine
from specchat.bench.latency import hear
from specchat.bench.markdown_table import table
from specchat.chat.events import StepDone, Totals
from specchat.chat.request import Request
from specchat.errors import SpecchatError

SEED = 7


@dataclass(frozen=True)
class Answer:
    """One answer of one variant: its text, its steps, its sums."""

    text: str
    steps: tuple[StepDone, ...]
    totals: Totals


@dataclass
class Beside:
    """A row: the answers of one variant, and those of plain decoding to the same requests."""

    variant: str
    answers: list[Answer] = field(default_factory=list[Answer], kw_only=True)
    plain: list[Answer] = field(default_factory=list[Answer], kw_only=True)
    refused: str = field(default="", kw_only=True)  # why it could not run

    def take(self, engine: Engine, request: Request) -> Answer | None:
        """Let both answer. None from a variant that cannot run, which is not asked again."""
        if self.refused:
            return None
        plain = ask(engine, replace(request, variant="plain"))
        try:
            answer = ask(engine, replace(request, variant=self.variant))
        except SpecchatError as error:
            self.refused = str(error)
            return None
        self.plain.append(plain)
        self.answers.append(answer)
        return answer

    @property
    def tokens_per_pass(self) -> float:
        """Tokens by passes of the target, over all answers."""
        return total_of(self.answers, "tokens") / max(total_of(self.answers, "steps"), 1)

    @property
    def times_plain(self) -> float:
        """Speed of decoding against plain decoding of the same requests; above 1 is faster."""
        return seconds_per_token(self.plain) / seconds_per_token(self.answers)

    @property
    def same_text(self) -> int:
        """Answers that are equal to those of plain decoding."""
        return sum(ours.text == plain.text for ours, plain in zip(self.answers, self.plain, strict=True))


def ask(engine: Engine, request: Request) -> Answer:
    """One answer in a conversation of its own; SpecchatError when it cannot be made."""
    with engine.session() as session:
        heard = hear(session.ask(request))
    return Answer(heard.text, heard.steps, heard.totals)


def total_of(answers: Sequence[Answer], name: str) -> int:
    """One of the totals, summed over answers."""
    return sum(getattr(answer.totals, name) for answer in answers)


def seconds_per_token(answers: Sequence[Answer]) -> float:
    """Of decoding, over all answers."""
    return sum(answer.totals.decode_seconds for answer in answers) / max(total_of(answers, "tokens"), 1)


def markdown(head: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[Beside]) -> str:
    """A table, and below it who could not run, and why; each once."""
    refused = list(dict.fromkeys(f"{row.variant}: {row.refused}" for row in rows if row.refused))
    return "\n".join([table(head, cells), *(["", *refused] if refused else [])])
