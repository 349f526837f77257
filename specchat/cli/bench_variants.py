"""`specchat bench variants`: every way to guess on the same prompts, in one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from specchat.cli.bench_prompts import PROMPTS
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError, UsageError
from specchat.profile import DRAFTER_NAMES, all_drafters

ALL_VARIANTS = "all"
DEFAULT_KINDS = ("edit", "code", "chat")


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--variants", "names", default=ALL_VARIANTS, show_default=True, help="Which, with commas between them.")
@click.option(
    "--kind", "kinds", multiple=True, help=f"Only prompts of this kind; {', '.join(DEFAULT_KINDS)} when left out."
)
@click.option("--count", default=5, show_default=True, help="Most prompts of each kind.")
@click.option("--limit", default=120, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@profile_options
def variants(
    prompts: Path | None, names: str, kinds: tuple[str, ...], count: int, limit: int, threads: int, **options: Any
) -> None:
    """Measure every variant beside plain decoding, at temperatures 0 and 0.8.

    PROMPTS is a file or folder as for `bench`; without it, a few questions of our own are asked.
    """
    chosen = list(DRAFTER_NAMES) if names == ALL_VARIANTS else names.split(",")
    for name in chosen:
        if name not in all_drafters():
            raise UsageError(f"unknown variant {name!r}; known are {', '.join(all_drafters())}")
    from specchat.assemble import load_engine
    from specchat.bench.auto import group_by_kind
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.prompt_files import read_prompts
    from specchat.bench.report import set_thread_count as use_threads
    from specchat.bench.variants import as_table, measure_variants

    engine = load_engine(resolve_profile(options))
    use_threads(threads)
    asked = group_by_kind(engine, read_prompts(prompts), count) if prompts else BUILTIN_REQUESTS
    wanted = {kind: asked[kind][:count] for kind in kinds or DEFAULT_KINDS if kind in asked}
    if not wanted:
        raise InputError(f"no prompt of such a kind there; there are {', '.join(asked) or 'none at all'}")
    print(
        as_table(
            list(measure_variants(engine, chosen, wanted, (0.0, 0.8), limit, lambda what: print(what, file=sys.stderr)))
        )
    )
