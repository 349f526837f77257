"""Replays edits of real commits: the tokens per step of drafters without a model, when the answer is the real commit.

The reference answer is forced as the text of the model, so no model runs, and every drafter sees the same text. A row
shows the tokens per step, the draft tokens per step, and the time of a proposal.

    python -m tools.replay_edits --prompts commit_edits.jsonl --budgets 16,32
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import click

from specchat.chat.attachments import fenced_file
from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Attachment, Request
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.accept import accept
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.hub.find_models import find_model
from specchat.text.tokenizer import Tokenizer
from tools.move_method import move_method

SKIPPED_TOKENS = 32  # at the start of an answer, where a drafter cannot know yet that a file is copied


@dataclass(frozen=True)
class EditCase:
    """One edit of a prompt file; `after` is None where the result is not known."""

    instruction: str
    path: str
    before: str
    after: str | None


@dataclass(frozen=True)
class TokenizedEdit:
    """One edit of one file, as tokens."""

    prompt: list[int]
    reference: list[int]  # the file after, in the form of an answer


@dataclass(frozen=True)
class ReplayedEdit:
    """The result of one drafter on one edit."""

    tokens_per_step: float
    draft_tokens_per_step: float
    proposal_microseconds: float  # without the first one, which indexes the prompt


DRAFTER_BY_NAME: dict[str, type[Drafter]] = {"lookup": PromptLookup, "suffix": SuffixDecoding}


def read_edit_cases(path: Path) -> list[EditCase]:
    """The edits of a file of JSON lines with `instruction` and `before`, and optionally `path` and `after`.

    Where `after` is missing and the instruction moves a method out of its class, a rule makes it.
    """
    return [_edit_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _edit_case(row: dict[str, str]) -> EditCase:
    instruction, before = row["instruction"], row["before"]
    return EditCase(
        instruction, row.get("path", "code.py"), before, row.get("after") or move_method(instruction, before)
    )


def tokenize_edits(rows: Iterable[EditCase], tokenizer: Tokenizer) -> Iterator[TokenizedEdit]:
    """Tokenize the edits whose result is known and differs."""
    for row in rows:
        if row.after is None or row.after == row.before:
            continue
        before, after = Attachment(row.path, row.before), Attachment(row.path, row.after)
        prompt = build_next_prompt(tokenizer, "", (), Request(row.instruction, files=(before,))).token_ids
        answer = fenced_file(after).partition("\n")[2]  # without the line with its name
        yield TokenizedEdit(prompt, tokenizer.encode_continuation(tokenizer.control_tokens.escape(answer)))


def replay(drafter: Drafter, edit: TokenizedEdit, budget: int) -> ReplayedEdit:
    """Let a drafter draft the answer, whose tokens are the sampled tokens of the target."""
    text, expected = list(edit.prompt), edit.prompt + edit.reference
    committed_counts, draft_token_count, seconds = list[int](), 0, list[float]()
    while len(text) < len(expected):
        started_at = perf_counter()
        tree = drafter.propose(DraftContext(text, Sampler(), min(budget, len(expected) - len(text) - 1)))
        seconds.append(perf_counter() - started_at)
        sampled_tokens = [expected[min(len(text) + depth, len(expected) - 1)] for depth in tree.depths]
        outcome = Outcome(tree, accept(tree, sampled_tokens), sampled_tokens, len(text) - 1)
        drafter.observe(outcome)
        if len(text) - len(edit.prompt) >= SKIPPED_TOKENS:
            committed_counts.append(len(outcome.committed_tokens))
            draft_token_count += len(tree) - 1
        text = text + outcome.committed_tokens
    passes = max(len(committed_counts), 1)
    return ReplayedEdit(
        sum(committed_counts) / passes, draft_token_count / passes, 1e6 * sum(seconds[1:]) / max(len(seconds) - 1, 1)
    )


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--target", default="embedded", show_default=True, help="the model whose tokenizer is used")
@click.option("--budgets", default="16,32", show_default=True, help="draft tokens in a pass")
@click.option("--count", type=int, help="number of edits; all by default")
def main(prompts: Path, target: str, budgets: str, count: int | None) -> None:
    """Print a table: medians over the edits."""
    tokenizer = Tokenizer(find_model(target))
    edits = [
        edit for edit in tokenize_edits(read_edit_cases(prompts), tokenizer) if len(edit.reference) > SKIPPED_TOKENS
    ][:count]
    click.echo(f"{len(edits)} edits\n\n| drafter | budget | tokens/step | draft tokens/step | µs per proposal |")
    click.echo("|---|---|---|---|---|")
    for budget in map(int, budgets.split(",")):
        for name, make_drafter in DRAFTER_BY_NAME.items():
            rows = [replay(make_drafter(), edit, budget) for edit in edits]
            tokens, draft_tokens, microseconds = (
                median(getattr(row, field) for row in rows)
                for field in ("tokens_per_step", "draft_tokens_per_step", "proposal_microseconds")
            )
            click.echo(f"| {name} | {budget} | {tokens:.2f} | {draft_tokens:.1f} | {microseconds:.0f} |")


if __name__ == "__main__":
    main()
