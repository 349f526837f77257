"""`specchat stats`: what each drafter brought, summed over the history. Starts no engine."""

from collections.abc import Sequence
from contextlib import closing

import click

from specchat.cli.notes import print_note, print_rows
from specchat.history.history_reader import HistoryReader
from specchat.host.protocol import impossible_numbers
from specchat.host.spawn import history_path
from specchat_bench.answer_sums import GROUPINGS, AnswerTotals, all_turns, sum_by_group

NO_ANSWERS_MESSAGE = "no answers yet"


@click.command()
@click.option(
    "--by", "grouping", type=click.Choice(tuple(GROUPINGS)), default="variant", show_default=True, help="The rows."
)
def stats(grouping: str) -> None:
    """Show what each drafter brought: tokens, speed relative to plain decoding, and acceptance.

    Summed over all stored conversations. `speedup` compares with plain decoding as measured during each answer; a range
    is its 95 % interval. `acceptance` is how often a draft token was right where those before it were, also by depth.
    """
    path = history_path()
    if not path.is_file():
        print_rows(NO_ANSWERS_MESSAGE)
        return
    with closing(HistoryReader(path)) as reader:
        turns = list(all_turns(reader))
    if broken := sum(bool(impossible_numbers(turn.totals)) for turn in turns):
        print_note(f"specchat: impossible numbers are left out, in {broken} of {len(turns)} stored answers")
    sums = sum_by_group(turns, grouping)
    print_rows(as_table(sums, grouping) if sums else NO_ANSWERS_MESSAGE)


def as_table(sums: Sequence[AnswerTotals], grouping: str = "variant") -> str:
    speed, drafts = ("tokens/s", "tokens/step", "speedup"), ("acceptance", "by depth", "accepted by drafter")
    head = [grouping, "answers", "tokens", *speed, *drafts]
    lines = [head, *(each.cells() for each in sums)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
