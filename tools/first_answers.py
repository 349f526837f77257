"""The first answers of a newcomer, counted again: README's questions in a fresh home, as a person would ask them.

    python -m tools.first_answers --count 10

Each answer is one `specchat -p QUESTION --json`, with the starter model, as its authors advise. What its last line, the
history and `specchat stats` say is compared with the tokens and the steps of the text that is kept. The exit code is 1
when a figure differs, or holds tokens of a loop (`specchat/chat/repetition.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from specchat.acceptance_counts import Acceptance
from specchat.app.updates import ANSWER_CHUNK
from specchat.chat.events import REPETITION, StepDone, Totals
from specchat.chat.repetition import RepetitionDetector
from specchat.chat.request import Request
from specchat.chat.turn_summary import speculation_to_json
from specchat.cli.demo import QUESTIONS
from specchat.history.history_reader import HistoryReader, StoredTurn
from specchat.host.protocol import totals_from_json
from specchat.profile.keys import Profile
from specchat_bench.answer_sums import all_turns
from specchat_bench.columns import markdown_table
from tools.draw_screens import STARTER_REQUESTS
from tools.instrument import run_instrument

SPECCHAT = sys.executable, "-m", "specchat"
OTHER_QUESTIONS = "What is a generator?", STARTER_REQUESTS.question, STARTER_REQUESTS.inspected
ENDS = "stop", "length", REPETITION


@dataclass
class Question:
    """A question with its answers so far, and what is wrong with them."""

    request: Request
    ends: Counter[str] = field(default_factory=Counter[str])
    tokens: int = 0
    cut_tokens: int = 0
    faults: list[str] = field(default_factory=list[str])

    def add(self, turn: StoredTurn, steps: Sequence[StepDone], lines: Sequence[dict[str, Any]]) -> None:
        totals = totals_from_json(turn.totals)
        self.ends[turn.state] += 1
        self.tokens += len(turn.answer.token_ids)
        self.cut_tokens += totals.repeated_tokens
        self.faults += faults_of(turn, totals, steps, lines)

    def cells(self) -> list[str]:
        counts = [str(self.ends[end]) for end in ENDS]
        return [self.request.text, *counts, str(self.tokens), str(self.cut_tokens), str(len(self.faults))]


def faults_of(
    turn: StoredTurn, totals: Totals, steps: Sequence[StepDone], lines: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """What the figures of an answer say of other tokens than those of its text."""
    result, kept = lines[-1], len(turn.answer.token_ids)
    repeated = RepetitionDetector(Profile().limits.repeats).add_all(turn.answer.token_ids)[1]
    if repeated:
        yield f"the text has {repeated.repeats} blocks of {repeated.block_tokens} tokens in a row"
    streamed = "".join(
        line["update"]["content"]["text"]
        for line in lines
        if line["type"] == "update" and line["update"]["sessionUpdate"] == ANSWER_CHUNK
    )
    if not streamed.startswith(turn.answer.text) or (streamed != turn.answer.text and turn.state != REPETITION):
        yield "another text was streamed"
    for name, counted, reported in (
        ("text", turn.answer.text, result["result"]),
        ("tokens of the last line", kept, result["usage"]["output_tokens"]),
        ("tokens of the history", kept, totals.completion_tokens),
        ("tokens of the steps", kept, sum(step.tokens for step in steps)),
        ("acceptance of the steps", sum((step.acceptance for step in steps), Acceptance()), totals.acceptance),
        ("speculation", json.loads(json.dumps(speculation_to_json(totals))), result["spec"]),
        ("speed", round(kept / totals.seconds, 1), result["tokens_per_second"]),
    ):
        if counted != reported:
            yield f"{name}: {counted} counted, {reported} reported"


def ask(question: Request, limit: int) -> list[dict[str, Any]]:
    """The lines of an answer, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = list[str]()
        for file in question.files:
            (path := Path(folder) / file.name).write_text(file.text, encoding="utf-8")
            files += ["-f", str(path)]
        command = [*SPECCHAT, "-p", question.text, "--json", "--max-tokens", str(limit), "--target", "starter", *files]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in answer.stdout.splitlines()]


def ask_all(questions: Sequence[Question], count: int, limit: int, history: Path) -> None:
    known = set[str]()
    for number in range(count):
        for question in questions:
            lines = ask(question.request, limit)
            with closing(HistoryReader(history)) as reader:
                [turn] = [each for each in all_turns(reader) if each.id not in known]
                known.add(turn.id)
                question.add(turn, reader.steps(turn.id), lines)
        click.echo(f"{number + 1} of {count}", err=True)


def fault_of_stats(questions: Sequence[Question]) -> Iterator[str]:
    """The only line of `specchat stats`: all answers are those of one variant."""
    stats = subprocess.run([*SPECCHAT, "stats"], check=True, capture_output=True, text=True).stdout.splitlines()
    tokens = sum(each.tokens for each in questions)
    if stats[1].split()[2] != str(tokens):
        yield f"specchat stats: {tokens} tokens counted, {stats[1].split()[2]} said"


@click.command("first_answers")
@click.option("--count", default=10, show_default=True, help="Answers of each question.")
@click.option("--limit", default=300, show_default=True, help="Most tokens of an answer.")
def first_answers(count: int, limit: int) -> int:
    """Ask README's questions in a fresh home, and count the tokens of every figure again."""
    questions = [Question(request) for request in (*QUESTIONS, *map(Request, OTHER_QUESTIONS))]
    with tempfile.TemporaryDirectory() as home:
        os.environ["SPECCHAT_HOME"] = home
        try:
            subprocess.run([*SPECCHAT, "models", "pull", "starter", "--yes"], check=True, stdout=subprocess.DEVNULL)
            ask_all(questions, count, limit, Path(home) / "data" / "history.db")
            faults = [*fault_of_stats(questions), *(fault for each in questions for fault in each.faults)]
        finally:
            subprocess.run([*SPECCHAT, "host", "stop"], check=False, capture_output=True)
    heads = ["question", "ended", "limit", "loop", "tokens counted", "tokens cut off", "wrong figures"]
    click.echo(markdown_table(heads, [each.cells() for each in questions]))
    for fault in faults:
        click.echo(fault, err=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(run_instrument(first_answers))
