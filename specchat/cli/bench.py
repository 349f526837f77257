"""`specchat bench`: how many times faster, measured here and now."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from specchat.cli.lazy import Later, LazyGroup
from specchat.cli.options import chosen_profile, profile_options
from specchat.errors import InputError


class Benches(LazyGroup):
    """What can be measured; prompts without a name before them are measured against transformers."""

    later: Mapping[str, Later] = {
        "peers": Later("specchat.cli.bench:peers", "Against transformers on the same weights."),
        "auto": Later("specchat.cli.bench_auto:auto", "The choice of the engine against plain decoding."),
        "variants": Later("specchat.cli.bench_variants:variants", "Every way to guess, in one table."),
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`bench FOLDER` is `bench peers FOLDER`, and `bench --variants all` is `bench variants`."""
        if args and args[0] not in (*self.later, "-h", "--help"):
            args = ["variants" if args[0].startswith("--variants") else "peers", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Benches)
def bench() -> None:
    """Measure how many times faster guessing makes it, here and now. `bench FOLDER` is `bench peers FOLDER`."""


@click.command()
@click.argument("prompts", type=click.Path(path_type=Path))
@click.option("--count", default=20, show_default=True, help="How many prompts.")
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass, ours and theirs alike; 0 leaves it to torch.")
@profile_options
def peers(prompts: Path, count: int, limit: int, threads: int, **options: Any) -> None:
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

    engine = load_engine(chosen_profile(options))
    use_threads(threads)
    chosen = tokens_of(engine, read_prompts(prompts), count, limit)
    if not chosen:
        raise InputError(f"{prompts}: no prompt there leaves room for {limit} tokens in the window")
    print(f"{len(chosen)} prompts, answers of at most {limit} tokens", file=sys.stderr)
    rows = []
    for row in Bench(engine, chosen, limit).rows():
        print(f"{row.name}: {row.ratio:.2f}", file=sys.stderr)
        rows.append(row)
    print(as_table(rows))
