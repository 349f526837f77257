"""`specchat tune`: measure the models of a profile on this machine, and begin there from now on."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.bench_sweep import INTERRUPTED_EXIT_CODE, check_output_folders, open_store, print_progress, run_sweep
from specchat.cli.options import profile_options, resolve_profile
from specchat.profile import Profile
from specchat.profile.tuned_values import tuned_path, tuned_source_for

if TYPE_CHECKING:
    from specchat.bench.sweep_report import CombinationResult


@click.command()
@click.option("--count", default=2, show_default=True, help="Questions of each kind.")
@click.option("--limit", default=80, show_default=True, help="Most tokens of an answer.")
@click.option("--picture", type=click.Path(path_type=Path), help="Draw it there; else it stands beside what is kept.")
@click.option("--show", is_flag=True, help="Print what was found out for these models here.")
@click.option("--forget", is_flag=True, help="Begin untuned again.")
@click.option("--fresh", is_flag=True, help="Forget what an interrupted run has kept.")
@profile_options
def tune(count: int, limit: int, picture: Path | None, show: bool, forget: bool, fresh: bool, **options: Any) -> int:
    """Measure the models of a profile on this machine, for some minutes, and begin there from now on.

    What comes of it is a layer beneath your config.toml: how many guesses a pass may have, and who is asked first on
    each kind of request. `specchat config show --origin` calls it tuned. Other models, another card or new weights are
    not tuned by it. What passes and drafters cost is kept, too. Ctrl-C changes nothing, and the same command goes on.
    """
    profile = resolve_profile(options)
    path = tuned_path(profile)
    if show:
        return _print_tuned_values(profile, path)
    if forget:
        was_there = path.is_file()
        for file in (path, _default_plot_path(path)):
            file.unlink(missing_ok=True)
        click.echo(f"{path}: {'forgotten' if was_there else 'nothing was tuned'}")
        return 0
    check_output_folders(picture)
    if picture is not None:
        from specchat.bench.sweep_plot import check_plot_path

        check_plot_path(picture)
    return _run_tuning(profile, path, picture, count, limit, fresh=fresh)


def _print_tuned_values(profile: Profile, path: Path) -> int:
    if tuned_source_for(profile) is None:
        click.echo(f"nothing is tuned for {_model_names(profile)} on this machine; 'specchat tune' does it")
        return 0
    click.echo(f"# {path}\n{path.read_text(encoding='utf-8').rstrip()}")
    return 0


def _run_tuning(profile: Profile, path: Path, picture: Path | None, count: int, limit: int, *, fresh: bool) -> int:
    from specchat.assemble import load_engine
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.sweep import engine_measurer
    from specchat.bench.sweep_report import group_samples, recommendations
    from specchat.bench.tuning import (
        as_toml,
        choose_values,
        drafters_with_cost,
        recording_draft_costs,
        tuning_grid,
        write_tuned_file,
    )

    engine = load_engine(profile)
    grid = tuning_grid(engine, limit)
    kept = open_store(engine, grid, fresh=fresh)
    ask = recording_draft_costs(engine_measurer(engine), engine.models.costs, drafters_with_cost(engine))
    collected = run_sweep(ask, grid, BUILTIN_REQUESTS, count, kept)
    if not collected.is_complete:
        print_progress(
            f"interrupted; nothing is changed, {len(kept)} answers are kept, and 'specchat tune' goes on from there"
        )
        return INTERRUPTED_EXIT_CODE
    rows = group_samples(collected.samples, grid)
    tuned = choose_values(rows)
    device = engine.models.target.pool.layout.device
    about = f"{_model_names(profile)} on {device}, {platform.node()}, {time.strftime('%Y-%m-%d')}"
    write_tuned_file(path, as_toml(tuned, rows, about))
    kept.discard()
    for kind, words in recommendations(rows).items():
        click.echo(f"{kind}: {words}")
    click.echo(f"at most {tuned.budget} guesses in a pass, where no profile says otherwise; kept in {path}")
    _draw_plot(rows, picture, _default_plot_path(path), about)
    return 0


def _draw_plot(rows: list[CombinationResult], requested_path: Path | None, default_path: Path, about: str) -> None:
    """The picture that was asked for, or one beside what is kept, where pictures can be drawn."""
    from specchat.bench.sweep_plot import can_draw, draw_sweep

    if can_draw():
        draw_sweep(rows, requested_path or default_path, about)
        click.echo(f"drawn in {requested_path or default_path}")


def _default_plot_path(path: Path) -> Path:
    return path.with_suffix(".svg")


def _model_names(profile: Profile) -> str:
    models = profile.models
    return f"{models.target} with {models.draft}" if models.draft else models.target
