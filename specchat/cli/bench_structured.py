"""`specchat bench structured`: what a prescribed form costs and brings."""

from __future__ import annotations

import sys
from typing import Any

import click

from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import UsageError
from specchat.profile import all_drafters

DEFAULT_VARIANTS = "auto,suffix,draft,eagle3"


@click.command()
@click.option(
    "--variants", "names", default=DEFAULT_VARIANTS, show_default=True, help="Which, with commas between them."
)
@click.option("--limit", default=120, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@profile_options
def structured(names: str, limit: int, threads: int, **options: Any) -> None:
    """Ask for JSON freely and under schemas: tokens a pass, speed against plain decoding, documents that fit."""
    chosen = names.split(",")
    for name in chosen:
        if name not in all_drafters():
            raise UsageError(f"unknown variant {name!r}; known are {', '.join(all_drafters())}")
    from specchat.assemble import load_engine
    from specchat.bench.report import set_thread_count as use_threads
    from specchat.bench.structured import as_table, measure_structured

    engine = load_engine(resolve_profile(options))
    use_threads(threads)
    print(as_table(list(measure_structured(engine, chosen, limit, lambda what: print(what, file=sys.stderr)))))
