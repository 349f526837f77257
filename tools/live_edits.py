"""Edits of real files by a real model: their speed, and how often the answer equals the real commit.

Each edit is generated four times in turn: plain, with `suffix` alone, with `suffix` that knows the rewritten file, and
with `auto` that knows it, too. All four must give the same text. The ratios compare decoding side by side; the first
edit warms up and is not counted.

    python -m tools.live_edits --prompts editeval.jsonl --count 20
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click

from specchat.bench.columns import markdown_table
from specchat.bench.latency import TimedAnswer, time_answer
from specchat.chat.request import Attachment, Request
from specchat.edit.answer_blocks import choose_text
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile import load_profile
from tools.replay_edits import EditCase, read_edit_cases

CONFIGURATIONS = {
    "suffix": ("suffix", False),
    "suffix and the file": ("suffix", True),
    "auto and the file": ("auto", True),
}
SPARE_TOKENS = 64


@dataclass(frozen=True)
class MeasuredEdit:
    """One edit in every configuration."""

    plain: TimedAnswer
    answers: dict[str, TimedAnswer]
    matches_reference: bool  # apart from trailing whitespace

    def speedup(self, configuration: str) -> float:
        """Speed relative to plain decoding."""
        return _tokens_per_second(self.answers[configuration]) / _tokens_per_second(self.plain)


def measure_edits(engine: Engine, rows: Sequence[EditCase], count: int) -> Iterator[MeasuredEdit]:
    """At most `count` edits that fit the context window."""
    context_window, done = engine.models.target.context_window, 0
    for row in rows:
        file = Attachment(row.path, row.before)
        max_tokens = len(engine.models.tokenizer.encode(row.before)) * 5 // 4 + SPARE_TOKENS
        if 2 * max_tokens + SPARE_TOKENS > context_window or done == count:
            continue
        request = Request(row.instruction, (file,), max_tokens, seed=1, temperature=0.0, task="edit")
        try:
            yield _measure_edit(engine, request, row)
        except SpecchatError as error:
            print(f"{row.path}: {error}", file=sys.stderr)
        else:
            done += 1


def measure_answer(engine: Engine, request: Request) -> TimedAnswer:
    """One answer in a session of its own. SpecchatError when it cannot be made."""
    with engine.create_session() as session:
        return time_answer(session.ask(request))


def _measure_edit(engine: Engine, request: Request, row: EditCase) -> MeasuredEdit:
    plain = measure_answer(engine, replace(request, variant="plain"))
    answers = {
        name: measure_answer(engine, replace(request, variant=variant, rewrites=row.path if knows_file else ""))
        for name, (variant, knows_file) in CONFIGURATIONS.items()
    }
    text = choose_text(make_source(row.before.encode(), row.path), plain.text).text
    return MeasuredEdit(plain, answers, text.rstrip() == (row.after or "").rstrip())


def as_table(measured_edits: Sequence[MeasuredEdit]) -> str:
    """A row for each configuration, as Markdown."""
    rows = list[list[str]]()
    for name in CONFIGURATIONS:
        answers = [each.answers[name] for each in measured_edits]
        tokens = sum(answer.totals.completion_tokens for answer in answers)
        steps = sum(answer.totals.steps for answer in answers)
        plain_seconds = sum(each.plain.totals.decode_seconds for each in measured_edits)
        seconds = sum(answer.totals.decode_seconds for answer in answers)
        identical = sum(each.plain.text == each.answers[name].text for each in measured_edits)
        middle = median(each.speedup(name) for each in measured_edits)
        numbers = [f"{tokens / steps:.2f}", f"{middle:.2f}", f"{plain_seconds / seconds:.2f}"]
        rows.append([name, *numbers, f"{identical} of {len(measured_edits)}"])
    return markdown_table(["drafter", "tokens/step", "median speedup", "total speedup", "identical"], rows)


def _tokens_per_second(answer: TimedAnswer) -> float:
    return answer.totals.completion_tokens / answer.totals.decode_seconds


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--target", default="embedded", show_default=True, help="the target model")
@click.option("--count", default=20, show_default=True, help="number of edits")
def main(prompts: Path, target: str, count: int) -> None:
    """Print the table, and how many answers equal the reference."""
    engine = load_engine(load_profile("edit").override({"models.target": target}))
    measured = list(measure_edits(engine, read_edit_cases(prompts), count + 1))[1:]
    matching = sum(each.matches_reference for each in measured)
    print(f"{prompts.name}: {len(measured)} edits, {matching} answers equal the reference\n\n{as_table(measured)}")


if __name__ == "__main__":
    main()
