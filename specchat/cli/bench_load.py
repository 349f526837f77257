"""`specchat bench load`: whether the shown "x plain" is true while other programs start and stop."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import click

from specchat.cli.bench import INTERRUPTED_EXIT_CODE, PROMPTS, check_output_paths, parse_names, print_progress
from specchat.cli.completion import complete_drafters
from specchat.cli.loaded_engine import load_engine_here
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError
from specchat.profile import all_drafters

SEED = 7


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--drafter", default="auto", show_default=True, help="The drafter.", shell_complete=complete_drafters)
@click.option("--count", default=30, show_default=True, help="Answers, each under one of six patterns of load.")
@click.option("--limit", default=100, show_default=True, help="Most tokens of an answer.")
@click.option(
    "--burners", "burner_count", type=click.IntRange(1), help="Processes that load the machine [as its cores]."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every answer to this file, as JSON.")
@profile_options
def load(
    prompts: Path | None,
    drafter: str,
    count: int,
    limit: int,
    burner_count: int | None,
    json_file: Path | None,
    **options: Any,
) -> int:
    """Compare the shown speedup with the truth while other programs start and stop.

    Processes that load the machine run during parts of each answer. Plain decoding of the same answer, before and after
    it and with the same changes of load at the same tokens, is the truth. PROMPTS are as for `specchat bench`.
    """
    [drafter] = parse_names("drafter", drafter, all_drafters())
    check_output_paths(json_file, None)
    profile = resolve_profile(options)
    from specchat.bench.load_changes import Burners, LoadAnswer, as_table, measure_answers, plain_line
    from specchat.bench.measure import requests_by_kind

    in_turn = chain.from_iterable(zip_longest(*requests_by_kind(profile, prompts, count).values()))
    requests = [replace(each, variant=drafter, seed=SEED, max_tokens=limit) for each in in_turn if each is not None]
    engine, answers, is_complete = load_engine_here(profile), list[LoadAnswer](), True
    with Burners(burner_count or os.cpu_count() or 1) as burners:
        try:
            for answer in measure_answers(engine, requests, count, burners, print_progress):
                answers.append(answer)  # one by one: Ctrl-C keeps those before it
        except KeyboardInterrupt:
            is_complete = False
    if not answers:
        raise InputError("nothing was measured: no prompt there could be answered")
    click.echo(as_table(answers))
    click.echo(plain_line(answers))
    if json_file:
        json_file.write_text(json.dumps([asdict(each) for each in answers]), encoding="utf-8")
    return 0 if is_complete else INTERRUPTED_EXIT_CODE
