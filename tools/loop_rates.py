"""How often a model falls into a loop, with and without penalties on repetition, and what they cost drafters.

    python -m tools.loop_rates --target starter

Every question is answered once with each setting and the same seed, at the temperature that suits the model. An answer
ends by itself, at its limit, or in a loop (`specchat/chat/repetition.py`); loops count for no other number.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from specchat.chat.events import REPETITION, Failed, Finished, Totals
from specchat.chat.request import Request
from specchat.chat.sum_totals import sum_totals
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import error_with_exit_code
from specchat.loading.load_engine import Engine
from specchat_bench.columns import markdown_table
from specchat_bench.loaded_engine import load_engine_here
from tools.instrument import run_instrument

SETTINGS: dict[str, dict[str, Any]] = {
    "as advised": {},
    "repetition penalty 1.05": {"sampling.repetition_penalty": 1.05},
    "repetition penalty 1.1": {"sampling.repetition_penalty": 1.1},
    "frequency penalty 0.1": {"sampling.frequency_penalty": 0.1},
}
SUBJECTS = (
    "a generator in Python", "a linked list", "a virtual machine", "an index of a database", "a checksum",
    "photosynthesis", "a volcano", "the water cycle", "an eclipse", "a vaccine", "inflation", "a parliament",
    "a sonnet", "a symphony", "chess",
)  # fmt: skip
FORMS = (
    "What is {}?", "Explain {} to a child.", "List the parts of {}, and say what each is for.",
    "Why does {} matter? Answer in three paragraphs.",
)  # fmt: skip


def questions(count: int) -> Iterator[str]:
    """The forms alternate, so that few questions have all of them."""
    for number in range(count):
        yield FORMS[number % len(FORMS)].format(SUBJECTS[number // len(FORMS) % len(SUBJECTS)])


@dataclass
class Measured:
    """The answers with one setting."""

    reasons: Counter[str] = field(default_factory=Counter[str])
    finished: list[Finished] = field(default_factory=list[Finished])

    def add(self, finished: Finished) -> None:
        self.reasons[finished.finish_reason] += 1
        self.finished.append(finished)

    def cells(self, name: str) -> list[str]:
        totals: Totals = sum_totals(self.finished)
        reasons, rate = self.reasons, totals.acceptance.rate
        counts = [str(reasons[each]) for each in ("stop", "length", REPETITION)]
        rates = [f"{totals.tokens_per_step:.2f}", "" if rate is None else f"{rate:.0%}".replace("%", " %")]
        return [name, *counts, *rates, f"{1000 * totals.decode_seconds / max(totals.completion_tokens, 1):.1f}"]


def measure(engine: Engine, changes: Mapping[str, Any], request: Request) -> Finished:
    with engine.create_session(profile=engine.models.profile.override(dict(changes))) as session:
        for event in session.ask(request):
            match event:
                case Finished():
                    return event
                case Failed(message=message, exit_code=code):
                    raise error_with_exit_code(message, code)
                case _:
                    pass
    raise AssertionError("an answer has no end")


@click.command("loop_rates")
@click.option("--count", default=60, show_default=True, help="Number of questions.")
@click.option("--limit", default=400, show_default=True, help="Most tokens of an answer.")
@profile_options
def loop_rates(count: int, limit: int, **options: Any) -> int:
    """Count loops with and without penalties. Ctrl-C ends it with the answers so far."""
    engine, measured = load_engine_here(resolve_profile(options)), {name: Measured() for name in SETTINGS}
    try:
        for number, question in enumerate(questions(count)):
            for name, changes in SETTINGS.items():
                request = Request(question, seed=1000 + number, max_tokens=limit)
                measured[name].add(measure(engine, changes, request))
            click.echo(f"{number + 1} of {count}", err=True)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    heads = ["sampling", "ended", "limit", "loop", "tokens/step", "acceptance", "ms/token"]
    click.echo(markdown_table(heads, [each.cells(name) for name, each in measured.items()]))
    return 0


if __name__ == "__main__":
    sys.exit(run_instrument(loop_rates))
