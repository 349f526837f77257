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

from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Attachment, Request
from specchat.chat.rewrite_source import as_answer_text
from specchat.drafters.combined import SuffixAndRealign
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.realign import Realign
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.accept import accept
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.models.load_options import find_model
from specchat.models.tokenizer import Tokenizer
from tools.move_method import move_method

SKIPPED_TOKENS = 32  # tokens of an answer: before, a drafter cannot know that a file is being copied


@dataclass(frozen=True)
class EditCase:
    """One edit as a file of prompts gives it; without `after` where nobody knows what should come of it."""

    instruction: str
    path: str
    before: str
    after: str | None


@dataclass(frozen=True)
class TokenizedEdit:
    """One edit of one file, as tokens."""

    prompt: list[int]
    original: list[int]  # the file as it was, in the shape of an answer
    reference: list[int]  # the file as it became


@dataclass(frozen=True)
class ReplayedEdit:
    """What one drafter made of one edit."""

    tokens_per_step: float
    draft_tokens_per_step: float
    proposal_microseconds: float  # after the first, which takes in the prompt


def _suffix_with_source(edit: TokenizedEdit) -> Drafter:
    """What drafts for an edit in a conversation."""
    drafter = SuffixAndRealign(SuffixDecoding())
    drafter.set_original(edit.original, len(edit.prompt))
    return drafter


DRAFTER_BY_NAME: dict[str, Callable[[TokenizedEdit], Drafter]] = {
    "lookup": lambda _edit: PromptLookup(),
    "suffix": lambda _edit: SuffixDecoding(),
    "realign": lambda edit: Realign(edit.original, len(edit.prompt)),
    "suffix and the file": _suffix_with_source,
}


def read_edit_cases(path: Path) -> list[EditCase]:
    """The edits of a file of JSON lines with `instruction` and `before`, and perhaps `path` and `after`.

    A method that is to be moved out of its class is moved by rule where there is no `after`.
    """
    return [_edit_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _edit_case(given: dict[str, str]) -> EditCase:
    asked, before = given["instruction"], given["before"]
    return EditCase(asked, given.get("path", "code.py"), before, given.get("after") or move_method(asked, before))


def tokenize_edits(rows: Iterable[EditCase], tokenizer: Tokenizer) -> Iterator[TokenizedEdit]:
    """Those of which is known what should come of them, and that change something."""
    for row in rows:
        if row.after is None or row.after == row.before:
            continue
        before, after = Attachment(row.path, row.before), Attachment(row.path, row.after)
        prompt = build_next_prompt(tokenizer, "", (), Request(row.instruction, files=(before,))).token_ids
        original, answer = (
            tokenizer.encode_continuation(tokenizer.escape_control_tokens(as_answer_text(file)))
            for file in (before, after)
        )
        yield TokenizedEdit(prompt, original, answer)


def replay(drafter: Drafter, edit: TokenizedEdit, budget: int) -> ReplayedEdit:
    """Let a drafter guess the answer, with its tokens as the picks of the target."""
    text, wanted = list(edit.prompt), edit.prompt + edit.reference
    counted, guesses, seconds = list[int](), 0, list[float]()
    while len(text) < len(wanted):
        begun = perf_counter()
        tree = drafter.propose(DraftContext(text, Sampler(), min(budget, len(wanted) - len(text) - 1)))
        seconds.append(perf_counter() - begun)
        picks = [wanted[min(len(text) + depth, len(wanted) - 1)] for depth in tree.depths]
        outcome = Outcome(tree, accept(tree, picks), picks, len(text) - 1)
        drafter.observe(outcome)
        if len(text) - len(edit.prompt) >= SKIPPED_TOKENS:
            counted.append(len(outcome.committed_tokens))
            guesses += len(tree) - 1
        text = text + outcome.committed_tokens
    passes = max(len(counted), 1)
    return ReplayedEdit(sum(counted) / passes, guesses / passes, 1e6 * sum(seconds[1:]) / max(len(seconds) - 1, 1))


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--target", default="embedded", show_default=True, help="the model whose tokenizer is used")
@click.option("--budgets", default="16,32", show_default=True, help="guesses in a pass")
@click.option("--most", type=int, help="edits to replay; default: all")
def main(prompts: Path, target: str, budgets: str, most: int | None) -> None:
    """Print a table: medians over the edits that are long enough to be counted."""
    tokenizer = Tokenizer(find_model(target))
    edits = [
        edit for edit in tokenize_edits(read_edit_cases(prompts), tokenizer) if len(edit.reference) > SKIPPED_TOKENS
    ][:most]
    click.echo(f"{len(edits)} edits\n\n| drafter | budget | tokens per pass | guesses per pass | us per proposal |")
    click.echo("|---|---|---|---|---|")
    for budget in map(int, budgets.split(",")):
        for name, made in DRAFTER_BY_NAME.items():
            rows = [replay(made(edit), edit, budget) for edit in edits]
            tokens, guesses, micros = (
                median(getattr(row, field) for row in rows)
                for field in ("tokens_per_pass", "guesses_per_pass", "proposal_microseconds")
            )
            click.echo(f"| {name} | {budget} | {tokens:.2f} | {guesses:.1f} | {micros:.0f} |")


if __name__ == "__main__":
    main()
