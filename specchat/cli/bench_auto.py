"""`specchat bench auto`: does leaving the choice to the engine cost anything, on this machine?"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any

import click

from specchat.cli.bench_prompts import PROMPTS
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError


@click.command()
@click.argument("prompts", type=PROMPTS)
@click.option("--count", default=20, show_default=True, help="Most prompts of each kind.")
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option("--kind", "kinds", multiple=True, help="Only prompts of this kind; can be given again.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to torch.")
@click.option("--rows", "raw", type=click.Path(path_type=Path), help="Write every pair to this file, as CSV.")
@profile_options
def auto(
    prompts: Path, count: int, limit: int, kinds: tuple[str, ...], threads: int, raw: Path | None, **options: Any
) -> None:
    """Measure `auto` against plain decoding, side by side.

    PROMPTS is a file or folder as for `bench`. Each prompt runs plain, auto, auto, plain, at temperatures 0 and 0.8;
    the table shows how many times as fast auto was, by kind. Where PROMPTS has too few of a kind, questions of our own
    are asked as well.
    """
    from specchat.assemble import load_engine
    from specchat.bench.auto import CANDIDATES_PER_PROMPT, as_csv, as_table, group_by_kind, measure_pairs
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.prompt_files import read_prompts
    from specchat.bench.report import set_thread_count as use_threads

    engine = load_engine(resolve_profile(options))
    use_threads(threads)
    ours = (each for kind in BUILTIN_REQUESTS.values() for each in kind if each.task or not each.files)
    requests = chain(read_prompts(prompts), ours)
    chosen = group_by_kind(engine, requests, count * CANDIDATES_PER_PROMPT)
    chosen = {kind: requests for kind, requests in chosen.items() if not kinds or kind in kinds}
    rows = list(measure_pairs(engine, chosen, (0.0, 0.8), limit, count, lambda what: print(what, file=sys.stderr)))
    if not rows:
        raise InputError(f"{prompts}: no prompt there fits the window")
    if raw is not None:
        raw.write_text(as_csv(rows), encoding="utf-8")
    print(as_table(rows))
