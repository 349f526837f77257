"""Edits of real commits, replayed: how far drafters that need no model get when the answer is the file as it became.

The reference answer is forced as the text of the model, so no model runs, and every drafter sees the same text. A row
says how many tokens a pass would have yielded, how many guesses it took, and what a proposal cost.

    python -m tools.replay_edits --prompts commit_edits.jsonl --budgets 16,32
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import click

from specchat.chat.prompt import extend
from specchat.chat.request import Attachment, Request
from specchat.chat.rewrite_source import as_answered
from specchat.drafters.combined import Copying
from specchat.drafters.prompt_lookup import Lookup
from specchat.drafters.realign import Realign
from specchat.drafters.suffix import Suffix
from specchat.engine.accept import accept
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.models.load import find_model
from specchat.models.tokenizer import Tokenizer
from tools.move_method import moved_out

COUNTED_FROM = 32  # tokens of an answer: before, a drafter cannot know that a file is being copied


@dataclass(frozen=True)
class Row:
    """One edit as a file of prompts gives it; without `after` where nobody knows what should come of it."""

    instruction: str
    path: str
    before: str
    after: str | None


@dataclass(frozen=True)
class Edit:
    """One edit of one file, as tokens."""

    prompt: list[int]
    original: list[int]  # the file as it was, in the shape of an answer
    answer: list[int]  # the file as it became


@dataclass(frozen=True)
class Replay:
    """What one drafter made of one edit."""

    tokens_per_pass: float
    guesses_per_pass: float
    proposal_microseconds: float  # after the first, which takes in the prompt


def _told(edit: Edit) -> Drafter:
    """What drafts for an edit in a conversation."""
    drafter = Copying(Suffix())
    drafter.rewrite(edit.original, len(edit.prompt))
    return drafter


CONTENDERS: dict[str, Callable[[Edit], Drafter]] = {
    "lookup": lambda _edit: Lookup(),
    "suffix": lambda _edit: Suffix(),
    "realign": lambda edit: Realign(edit.original, len(edit.prompt)),
    "suffix and the file": _told,
}


def read_rows(path: Path) -> list[Row]:
    """The edits of a file of JSON lines with `instruction` and `before`, and perhaps `path` and `after`.

    A method that is to be moved out of its class is moved by rule where there is no `after`.
    """
    return [_row(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _row(given: dict[str, str]) -> Row:
    asked, before = given["instruction"], given["before"]
    return Row(asked, given.get("path", "code.py"), before, given.get("after") or moved_out(asked, before))


def edits_of(rows: Iterable[Row], tokenizer: Tokenizer) -> Iterator[Edit]:
    """Those of which is known what should come of them, and that change something."""
    for row in rows:
        if row.after is None or row.after == row.before:
            continue
        before, after = Attachment(row.path, row.before), Attachment(row.path, row.after)
        prompt = extend(tokenizer, "", (), Request(row.instruction, files=(before,))).ids
        original, answer = (tokenizer.encode_inside(tokenizer.guard(as_answered(file))) for file in (before, after))
        yield Edit(prompt, original, answer)


def replay(drafter: Drafter, edit: Edit, budget: int) -> Replay:
    """Let a drafter guess the answer, with its tokens as the picks of the target."""
    text, wanted = list(edit.prompt), edit.prompt + edit.answer
    counted, guesses, seconds = list[int](), 0, list[float]()
    while len(text) < len(wanted):
        begun = perf_counter()
        tree = drafter.propose(Context(text, Sampler(), min(budget, len(wanted) - len(text) - 1)))
        seconds.append(perf_counter() - begun)
        picks = [wanted[min(len(text) + depth, len(wanted) - 1)] for depth in tree.depths]
        outcome = Outcome(tree, accept(tree, picks), picks, len(text) - 1)
        drafter.observe(outcome)
        if len(text) - len(edit.prompt) >= COUNTED_FROM:
            counted.append(len(outcome.tokens))
            guesses += len(tree) - 1
        text = text + outcome.tokens
    passes = max(len(counted), 1)
    return Replay(sum(counted) / passes, guesses / passes, 1e6 * sum(seconds[1:]) / max(len(seconds) - 1, 1))


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--target", default="embedded", show_default=True, help="the model whose tokenizer is used")
@click.option("--budgets", default="16,32", show_default=True, help="guesses in a pass")
@click.option("--most", type=int, help="edits to replay; default: all")
def main(prompts: Path, target: str, budgets: str, most: int | None) -> None:
    """Print a table: medians over the edits that are long enough to be counted."""
    tokenizer = Tokenizer(find_model(target))
    edits = [edit for edit in edits_of(read_rows(prompts), tokenizer) if len(edit.answer) > COUNTED_FROM][:most]
    click.echo(f"{len(edits)} edits\n\n| drafter | budget | tokens per pass | guesses per pass | us per proposal |")
    click.echo("|---|---|---|---|---|")
    for budget in map(int, budgets.split(",")):
        for name, made in CONTENDERS.items():
            rows = [replay(made(edit), edit, budget) for edit in edits]
            tokens, guesses, micros = (
                median(getattr(row, field) for row in rows)
                for field in ("tokens_per_pass", "guesses_per_pass", "proposal_microseconds")
            )
            click.echo(f"| {name} | {budget} | {tokens:.2f} | {guesses:.1f} | {micros:.0f} |")


if __name__ == "__main__":
    main()
