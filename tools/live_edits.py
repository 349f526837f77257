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

from specchat.assemble import Engine, load_engine
from specchat.bench.interleaved import Answer, ask
from specchat.chat.request import Attachment, Request
from specchat.edit.answer_check import unfenced
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat.profile import load_profile
from tools.replay_edits import Row, read_rows

WAYS = {"suffix": ("suffix", False), "suffix and the file": ("suffix", True), "auto and the file": ("auto", True)}
SPARE_TOKENS = 64


@dataclass(frozen=True)
class Edited:
    """One edit, asked in every way."""

    plain: Answer
    answers: dict[str, Answer]
    is_as_wanted: bool  # the text is the reference, but for the end of its last line

    def times_plain(self, way: str) -> float:
        """How many times as fast as plain decoding."""
        return _pace(self.answers[way]) / _pace(self.plain)


def edits(engine: Engine, rows: Sequence[Row], count: int) -> Iterator[Edited]:
    """At most `count` edits that fit the window; what the embedded model cannot read is passed over."""
    room, done = engine.voice.target.window, 0
    for row in rows:
        file = Attachment(row.path, row.before)
        most = len(engine.voice.tokenizer.encode(row.before)) * 5 // 4 + SPARE_TOKENS
        if 2 * most + SPARE_TOKENS > room or done == count:
            continue
        request = Request(row.instruction, (file,), most, seed=1, temperature=0.0, task="edit")
        try:
            yield _asked(engine, request, row)
        except SpecchatError as error:
            print(f"{row.path}: {error}", file=sys.stderr)
        else:
            done += 1


def _asked(engine: Engine, request: Request, row: Row) -> Edited:
    plain = ask(engine, replace(request, variant="plain"))
    answers = {
        way: ask(engine, replace(request, variant=variant, rewrites=row.path if is_told else ""))
        for way, (variant, is_told) in WAYS.items()
    }
    text = unfenced(make_source(row.before.encode(), row.path), plain.text)
    return Edited(plain, answers, text.rstrip() == (row.after or "").rstrip())


def as_table(found: Sequence[Edited]) -> str:
    """A row for each way, as Markdown."""
    lines = [
        "| who drafts | tokens per pass | x plain, median | x plain, all together | same text |",
        "|---|---|---|---|---|",
    ]
    for way in WAYS:
        answers = [each.answers[way] for each in found]
        passes = sum(answer.totals.tokens for answer in answers) / sum(answer.totals.steps for answer in answers)
        seconds = [sum(answer.totals.decode_seconds for answer in each) for each in ([e.plain for e in found], answers)]
        same = sum(each.plain.text == each.answers[way].text for each in found)
        middle = median(each.times_plain(way) for each in found)
        lines.append(
            f"| {way} | {passes:.2f} | {middle:.2f} | {seconds[0] / seconds[1]:.2f} | {same} of {len(found)} |"
        )
    return "\n".join(lines)


def _pace(answer: Answer) -> float:
    return answer.totals.tokens / answer.totals.decode_seconds


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--target", default="embedded", show_default=True, help="the model that writes")
@click.option("--count", default=20, show_default=True, help="edits that are counted")
def main(prompts: Path, target: str, count: int) -> None:
    """Print the table, and how many answers were the reference."""
    engine = load_engine(load_profile("edit").override({"models.target": target}))
    found = list(edits(engine, read_rows(prompts), count + 1))[1:]
    wanted = sum(each.is_as_wanted for each in found)
    print(f"{prompts.name}: {len(found)} edits, {wanted} answers are the reference\n\n{as_table(found)}")


if __name__ == "__main__":
    main()
