"""`specchat bench variants`: every way to guess on the same prompts, in one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from specchat.cli.bench_prompts import PROMPTS
from specchat.cli.options import chosen_profile, profile_options
from specchat.errors import InputError, UsageError
from specchat.profile import VARIANTS, every_guesser

ALL = "all"
KINDS = ("edit", "code", "chat")


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--variants", "names", default=ALL, show_default=True, help="Which, with commas between them.")
@click.option("--kind", "kinds", multiple=True, help=f"Only prompts of this kind; {', '.join(KINDS)} when left out.")
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
    chosen = list(VARIANTS) if names == ALL else names.split(",")
    for name in chosen:
        if name not in every_guesser():
            raise UsageError(f"unknown variant {name!r}; known are {', '.join(every_guesser())}")
    from specchat.assemble import load_engine
    from specchat.bench.auto import by_kind
    from specchat.bench.builtin_prompts import QUESTIONS
    from specchat.bench.prompt_files import read_prompts
    from specchat.bench.report import threads as use_threads
    from specchat.bench.variants import as_table, sweep

    engine = load_engine(chosen_profile(options))
    use_threads(threads)
    asked = by_kind(engine, read_prompts(prompts), count) if prompts else QUESTIONS
    wanted = {kind: asked[kind][:count] for kind in kinds or KINDS if kind in asked}
    if not wanted:
        raise InputError(f"no prompt of such a kind there; there are {', '.join(asked) or 'none at all'}")
    print(as_table(list(sweep(engine, chosen, wanted, (0.0, 0.8), limit, lambda what: print(what, file=sys.stderr)))))
