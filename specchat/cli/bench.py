"""`specchat bench`: how many times faster, measured here and now."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import chosen_profile, profile_options
from specchat.errors import InputError


@click.command()
@click.argument("prompts", type=click.Path(path_type=Path))
@click.option("--count", default=20, show_default=True, help="How many prompts.")
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass, ours and theirs alike; 0 leaves it to torch.")
@profile_options
def bench(prompts: Path, count: int, limit: int, threads: int, **options: Any) -> None:
    """Measure against transformers on the same weights, side by side.

    PROMPTS is a file of JSON lines with `turns`, or with `instruction` and `before`, or a folder of such files. Each
    prompt runs ours, theirs, theirs, ours; the table shows ratios of seconds per token, prompt included.
    """
    if not prompts.exists():
        raise InputError(f"{prompts}: no such file or folder")
    from specchat.assemble import load_engine
    from specchat.bench.prompts import read_prompts
    from specchat.bench.report import Bench, as_table, tokens_of
    from specchat.bench.report import threads as use_threads

    use_threads(threads)
    engine = load_engine(chosen_profile(options))
    chosen = tokens_of(engine, read_prompts(prompts), count, limit)
    if not chosen:
        raise InputError(f"{prompts}: no prompt there leaves room for {limit} tokens in the window")
    print(f"{len(chosen)} prompts, answers of at most {limit} tokens", file=sys.stderr)
    rows = []
    for row in Bench(engine, chosen, limit).rows():
        print(f"{row.name}: {row.ratio:.2f}", file=sys.stderr)
        rows.append(row)
    print(as_table(rows))
