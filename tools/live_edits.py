"""Edits of real files by a model that really writes: how fast, and how often the answer is the file as it became.

Each edit is asked four times, one after the other: plainly, by `suffix` alone, by `suffix` that is told what is being
rewritten, and by the choice of the engine that is told as well. All four must give the same text. The ratios compare
decoding side by side, so that a busy machine does not matter much; the first edit warms up and is not counted.

    python -m tools.live_edits --prompts editeval.jsonl --count 20
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click

from specchat.bench.interleaved import MeasuredAnswer, measure_answer
from specchat.chat.request import Attachment, Request
from specchat.edit.answer_check import strip_fence
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
    """One edit, asked in every way."""

    plain: MeasuredAnswer
    answers: dict[str, MeasuredAnswer]
    matches_reference: bool  # the text is the reference, but for the end of its last line

    def speedup(self, configuration: str) -> float:
        """How many times as fast as plain decoding."""
        return _tokens_per_second(self.answers[configuration]) / _tokens_per_second(self.plain)


def measure_edits(engine: Engine, rows: Sequence[EditCase], count: int) -> Iterator[MeasuredEdit]:
    """At most `count` edits that fit the window; what the embedded model cannot read is passed over."""
    room, done = engine.models.target.context_window, 0
    for row in rows:
        file = Attachment(row.path, row.before)
        most = len(engine.models.tokenizer.encode(row.before)) * 5 // 4 + SPARE_TOKENS
        if 2 * most + SPARE_TOKENS > room or done == count:
            continue
        request = Request(row.instruction, (file,), most, seed=1, temperature=0.0, task="edit")
        try:
            yield _measure_edit(engine, request, row)
        except SpecchatError as error:
            print(f"{row.path}: {error}", file=sys.stderr)
        else:
            done += 1


def _measure_edit(engine: Engine, request: Request, row: EditCase) -> MeasuredEdit:
    plain = measure_answer(engine, replace(request, variant="plain"))
    answers = {
        way: measure_answer(engine, replace(request, variant=variant, rewrites=row.path if is_told else ""))
        for way, (variant, is_told) in CONFIGURATIONS.items()
    }
    text = strip_fence(make_source(row.before.encode(), row.path), plain.text)
    return MeasuredEdit(plain, answers, text.rstrip() == (row.after or "").rstrip())


def as_table(measured_edits: Sequence[MeasuredEdit]) -> str:
    """A row for each way, as Markdown."""
    lines = [
        "| who drafts | tokens per pass | x plain, median | x plain, all together | same text |",
        "|---|---|---|---|---|",
    ]
    for way in CONFIGURATIONS:
        answers = [each.answers[way] for each in measured_edits]
        passes = sum(answer.totals.completion_tokens for answer in answers) / sum(
            answer.totals.steps for answer in answers
        )
        seconds = [
            sum(answer.totals.decode_seconds for answer in each)
            for each in ([e.plain for e in measured_edits], answers)
        ]
        same = sum(each.plain.text == each.answers[way].text for each in measured_edits)
        middle = median(each.speedup(way) for each in measured_edits)
        lines.append(
            f"| {way} | {passes:.2f} | {middle:.2f} | {seconds[0] / seconds[1]:.2f} | {same} of {len(measured_edits)} |"
        )
    return "\n".join(lines)


def _tokens_per_second(answer: MeasuredAnswer) -> float:
    return answer.totals.completion_tokens / answer.totals.decode_seconds


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--target", default="embedded", show_default=True, help="the model that writes")
@click.option("--count", default=20, show_default=True, help="edits that are counted")
def main(prompts: Path, target: str, count: int) -> None:
    """Print the table, and how many answers were the reference."""
    engine = load_engine(load_profile("edit").override({"models.target": target}))
    found = list(measure_edits(engine, read_edit_cases(prompts), count + 1))[1:]
    wanted = sum(each.matches_reference for each in found)
    print(f"{prompts.name}: {len(found)} edits, {wanted} answers are the reference\n\n{as_table(found)}")


if __name__ == "__main__":
    main()
