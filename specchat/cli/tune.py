"""`specchat tune`: measure the models of a profile on this machine, and begin there from now on."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.bench_sweep import INTERRUPTED, check_places, measure, store_of, talk
from specchat.cli.options import chosen_profile, profile_options
from specchat.profile import Profile
from specchat.profile.tuned_values import tuned_for, tuned_path

if TYPE_CHECKING:
    from specchat.bench.sweep_report import Measured


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
    profile = chosen_profile(options)
    path = tuned_path(profile)
    if show:
        return _show(profile, path)
    if forget:
        was_there = path.is_file()
        for file in (path, _own_picture(path)):
            file.unlink(missing_ok=True)
        click.echo(f"{path}: {'forgotten' if was_there else 'nothing was tuned'}")
        return 0
    check_places(picture)
    if picture is not None:
        from specchat.bench.sweep_plot import check_picture

        check_picture(picture)
    return _tune(profile, path, picture, count, limit, fresh=fresh)


def _show(profile: Profile, path: Path) -> int:
    if tuned_for(profile) is None:
        click.echo(f"nothing is tuned for {_models(profile)} on this machine; 'specchat tune' does it")
        return 0
    click.echo(f"# {path}\n{path.read_text(encoding='utf-8').rstrip()}")
    return 0


def _tune(profile: Profile, path: Path, picture: Path | None, count: int, limit: int, *, fresh: bool) -> int:
    from specchat.assemble import load_engine
    from specchat.bench.builtin_prompts import QUESTIONS
    from specchat.bench.sweep import engine_asker
    from specchat.bench.sweep_report import measured, recommended
    from specchat.bench.tune import as_toml, computing, decide, store, teaching, tuning_grid

    engine = load_engine(profile)
    grid = tuning_grid(engine, limit)
    kept = store_of(engine, grid, fresh=fresh)
    ask = teaching(engine_asker(engine), engine.voice.costs, computing(engine))
    collected = measure(ask, grid, QUESTIONS, count, kept)
    if not collected.is_whole:
        talk(f"interrupted; nothing is changed, {len(kept)} answers are kept, and 'specchat tune' goes on from there")
        return INTERRUPTED
    rows = measured(collected.samples, grid)
    tuned = decide(rows)
    device = engine.voice.target.pool.layout.device
    about = f"{_models(profile)} on {device}, {platform.node()}, {time.strftime('%Y-%m-%d')}"
    store(path, as_toml(tuned, rows, about))
    kept.discard()
    for kind, words in recommended(rows).items():
        click.echo(f"{kind}: {words}")
    click.echo(f"at most {tuned.budget} guesses in a pass, where no profile says otherwise; kept in {path}")
    _draw(rows, picture, _own_picture(path), about)
    return 0


def _draw(rows: list[Measured], wanted: Path | None, own: Path, about: str) -> None:
    """The picture that was asked for, or one beside what is kept, where pictures can be drawn."""
    from specchat.bench.sweep_plot import can_draw, draw

    if can_draw():
        draw(rows, wanted or own, about)
        click.echo(f"drawn in {wanted or own}")


def _own_picture(path: Path) -> Path:
    return path.with_suffix(".svg")


def _models(profile: Profile) -> str:
    models = profile.models
    return f"{models.target} with {models.draft}" if models.draft else models.target
