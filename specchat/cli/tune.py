"""`specchat tune`: measure the models of a profile on this machine, and start from the result from now on."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import click

from specchat.cli.bench import INTERRUPTED_EXIT_CODE, print_progress
from specchat.cli.loaded_engine import load_engine_here
from specchat.cli.options import profile_options, resolve_profile
from specchat.profile import Profile
from specchat.profile.shipped_drafters import with_shipped_drafters
from specchat.profile.tuned_values import tuned_path, tuned_source_for


@click.command()
@click.option("--count", default=2, show_default=True, help="Prompts of each kind.")
@click.option("--limit", default=80, show_default=True, help="Most tokens of an answer.")
@click.option("--show", is_flag=True, help="Print the tuned values of these models on this machine.")
@click.option("--forget", is_flag=True, help="Delete the tuned values.")
@click.option("--restart", is_flag=True, help="Discard the samples of an interrupted run.")
@profile_options
def tune(count: int, limit: int, show: bool, forget: bool, restart: bool, **options: Any) -> int:
    """Measure the models of a profile on this machine for some minutes, and start from the result from now on.

    The result is a layer below your config.toml: the number of draft tokens in a pass, and the order of drafters for
    each kind of request. `specchat config show --origin` calls it tuned. It is for these models, weights and this
    device only. The costs of passes and drafters are stored, too. Ctrl-C changes nothing; the same command resumes.
    """
    profile = resolve_profile(options)
    path = tuned_path(profile)
    if show:
        is_tuned = tuned_source_for(profile) is not None
        nothing = f"nothing is tuned for {_model_names(profile)} on this machine; run 'specchat tune'"
        click.echo(f"# {path}\n{path.read_text(encoding='utf-8').rstrip()}" if is_tuned else nothing)
        return 0
    if forget:
        existed = path.is_file()
        path.unlink(missing_ok=True)
        click.echo(f"{path}: {'deleted' if existed else 'nothing was tuned'}")
        return 0
    return _run_tuning(profile, path, count, limit, restart=restart)


def _run_tuning(profile: Profile, path: Path, count: int, limit: int, *, restart: bool) -> int:
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.columns import group_samples, recommendations
    from specchat.bench.measure import engine_measurer, open_store, run_bench
    from specchat.bench.tuning import (
        as_toml,
        choose_values,
        drafters_with_cost,
        recording_draft_costs,
        tuning_grid,
        write_tuned_file,
    )

    engine = load_engine_here(profile)
    grid = tuning_grid(engine, limit)
    store = open_store(engine, grid, restart=restart)
    measure = recording_draft_costs(engine_measurer(engine), engine.models.costs, drafters_with_cost(engine))
    collected = run_bench(measure, grid, BUILTIN_REQUESTS, count, store, print_progress)
    if not collected.is_complete:
        print_progress(f"interrupted; nothing changes, {len(store)} samples are stored, and 'specchat tune' resumes")
        return INTERRUPTED_EXIT_CODE
    rows = group_samples(collected.samples, grid)
    tuned = choose_values(rows)
    device = engine.models.target.pool.layout.device
    about = f"{_model_names(profile)} on {device}, {platform.node()}, {time.strftime('%Y-%m-%d')}"
    write_tuned_file(path, as_toml(tuned, rows, about))
    store.discard()
    for kind, sentence in recommendations(rows).items():
        click.echo(f"{kind}: {sentence}")
    click.echo(f"at most {tuned.budget} draft tokens in a pass, unless a profile says otherwise; stored in {path}")
    return 0


def _model_names(profile: Profile) -> str:
    models = with_shipped_drafters(profile.models)
    return f"{models.target} with {models.draft}" if models.draft else models.target
