"""`specchat bench`: how many times faster, measured here and now."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from specchat.cli.bench_prompts import PROMPTS
from specchat.cli.lazy_group import LazyCommand, LazyGroup
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError, UsageError


class BenchGroup(LazyGroup):
    """What can be measured; prompts without a name before them are measured against transformers."""

    lazy_commands: Mapping[str, LazyCommand] = {
        "peers": LazyCommand("specchat.cli.bench:peers", "Against transformers and llama.cpp on the same weights."),
        "auto": LazyCommand("specchat.cli.bench_auto:auto", "The choice of the engine against plain decoding."),
        "variants": LazyCommand("specchat.cli.bench_variants:variants", "Every way to guess, in one table."),
        "structured": LazyCommand("specchat.cli.bench_structured:structured", "JSON by a schema against free answers."),
        "sweep": LazyCommand(
            "specchat.cli.bench_sweep:sweep", "Drafter x budget x width x temperature, with a picture."
        ),
        "passes": LazyCommand("specchat.cli.bench_passes:passes", "What a pass costs, against the memory's bandwidth."),
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`bench FOLDER` is `bench peers FOLDER`, and `bench --variants all` is `bench variants`."""
        if args and args[0] not in (*self.lazy_commands, "-h", "--help"):
            args = ["variants" if args[0].startswith("--variants") else "peers", *args]
        return super().parse_args(ctx, args)


@click.group(cls=BenchGroup)
def bench() -> None:
    """Measure how many times faster guessing makes it, here and now. `bench FOLDER` is `bench peers FOLDER`."""


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--count", default=20, show_default=True, help="How many prompts.")
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass, ours and theirs alike; 0 leaves it to torch.")
@click.option("--shape", default="", help="Random weights and edits of numbers instead: 0.5b, 8b, or a config.json.")
@click.option("--every", default=20, show_default=True, help="Numbers between two that such an edit replaces.")
@click.option("--only", default="", help="Only rows whose name has this, as 'generate'.")
@profile_options
def peers(
    prompts: Path | None, count: int, limit: int, threads: int, shape: str, every: int, only: str, **options: Any
) -> None:  # fmt: skip
    """Measure against transformers and llama.cpp on the same weights, side by side.

    PROMPTS is a file of JSON lines with `turns`, or with `instruction` and `before`, or a folder of such files. Each
    prompt runs ours, theirs, theirs, ours; the table shows ratios of seconds per token, prompt included. llama.cpp
    takes part where its library is at hand; SPECCHAT_LLAMA names the folder.
    """
    if (prompts is None) == (not shape):
        raise UsageError("give a file or folder of prompts, or --shape")
    if every < 2:
        raise UsageError("--every must be at least 2")
    from specchat.assemble import load_engine
    from specchat.bench.llama_cpp import MISSING_MESSAGE, find_library_folder
    from specchat.bench.prompt_files import read_prompts
    from specchat.bench.random_models import (
        RANDOM_WEIGHTS_WARNING,
        counting_edit_prompts,
        random_model_folder,
        source_tokens,
    )
    from specchat.bench.report import PeerBench, as_table, tokenize_prompts
    from specchat.bench.report import set_thread_count as use_threads

    profile = resolve_profile(options)
    if shape:
        print(RANDOM_WEIGHTS_WARNING, file=sys.stderr)
        profile = profile.override(
            {"models.target": str(random_model_folder(shape)), "models.draft": "", "models.heads": ()}
        )
    engine = load_engine(profile)
    use_threads(threads)
    if prompts is not None:
        chosen = tokenize_prompts(engine, read_prompts(prompts), count, limit)
    else:
        chosen = tuple(counting_edit_prompts(count, limit, every, engine.models.target.vocab_size))
    if not chosen:
        raise InputError(f"{prompts}: no prompt there leaves room for {limit} tokens in the window")
    print(f"{len(chosen)} prompts, answers of at most {limit} tokens", file=sys.stderr)
    if find_library_folder() is None:
        print(MISSING_MESSAGE, file=sys.stderr)
    rows = []
    for row in PeerBench(engine, chosen, limit, only, source_tokens if shape else None).rows():
        print(f"{row.name}: {row.median_speedup:.2f}", file=sys.stderr, flush=True)
        rows.append(row)
    print(as_table(rows))
