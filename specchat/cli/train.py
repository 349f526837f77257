"""`specchat train`: heads, or a small draft, for a target of one's own, learned from what is asked on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specchat.cli.options import PROFILE_OPTIONS, resolve_profile
from specchat.errors import UsageError
from specchat.host.spawn import history_path
from specchat.profile import Profile

if TYPE_CHECKING:
    from specchat.train.frozen_target import FrozenTarget

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])
HEAD_KINDS = ("eagle3", "eagle", "medusa", "mtp")
AGAINST_PROFILE = "profile"  # what --against means where it is not given
AGAINST_NONE = "none"


@click.group()
def train() -> None:
    """Train heads for a target of your own, from what is asked here. Nothing leaves this machine."""


def _training_options(command: CommandFunction) -> CommandFunction:
    """What both ways to a head take."""
    for option in reversed(
        (
            click.option("--target", help="The model that writes: embedded, a folder, or a hub id [the profile's]."),
            click.option(
                "--data",
                required=True,
                help="What it is asked: 'sessions' (the kept conversations), a folder of texts, or JSON lines.",
            ),
            click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder."),
            click.option(
                "--minutes", type=click.FloatRange(min=0.01), default=4.0, show_default=True, help="To train."
            ),
            click.option(
                "--tokens", type=click.IntRange(min=1), help="Train on so many tokens, whatever the clock says."
            ),
            click.option(
                "--most", type=click.IntRange(min=1), default=400, show_default=True, help="Questions to ask."
            ),
            click.option(
                "--held-out", type=click.IntRange(min=1), default=50, show_default=True, help="Turns to try on."
            ),
            click.option(
                "--limit", type=click.IntRange(min=8), default=120, show_default=True, help="Tokens of an answer."
            ),
            click.option("--seed", default=0, show_default=True, help="Of the first weights and the order of lessons."),
            click.option("--force", "is_forced", is_flag=True, help="Install the head though it is not better."),
            click.option(
                "--profile", "-P", default="chat", show_default=True, help="Whose models and dtype are meant."
            ),
        )
    ):
        command = option(command)
    return command


@train.command("head")
@click.option("--kind", type=click.Choice(HEAD_KINDS), default="eagle3", show_default=True, help="What kind of head.")
@click.option(
    "--against",
    default=AGAINST_PROFILE,
    show_default=True,
    help="The head that it must beat; 'profile': the profile's of this kind; 'none': guesses that copy.",
)
@_training_options
def head(kind: str, against: str, **options: Any) -> None:
    """Train a new head from the target's own answers, and install it if it is better than what there is."""
    _train_and_install(kind, None, against, options)


@train.command("continue")
@click.argument("start", metavar="HEAD")
@_training_options
def continue_head(start: str, **options: Any) -> None:
    """Train HEAD (a folder, or embedded/eagle3) further, and install the result elsewhere if it is better than HEAD."""
    from specchat.heads.detect import find_head, inspect_head

    found = find_head(start)
    kind = inspect_head(found).kind
    if kind not in HEAD_KINDS:
        raise UsageError(f"{start}: heads of kind {kind} cannot be trained further; known are {', '.join(HEAD_KINDS)}")
    _train_and_install(kind, found, str(found), options)


@train.command("draft")
@click.option("--start", help="A small model with the target's tokens that goes on [the profile's]; '' for a new one.")
@_training_options
def draft(start: str | None, **options: Any) -> None:
    """Teach a small model with the target's tokens to say what the target says, and install it if it is better."""
    from specchat.models.load import find_model

    models = _load_profile_by_name(options["profile"]).models
    is_of_profile = options["target"] in (None, models.target)
    source = start if start is not None else models.draft if is_of_profile else ""
    found = find_model(source, role="draft") if source else None
    _train_and_install("draft", found, str(found) if found else AGAINST_NONE, options)


def _train_and_install(kind: str, start: Path | None, against: str, options: dict[str, Any]) -> None:
    """What both commands do."""
    from specchat.models.load import EMBEDDED, LoadOptions
    from specchat.train.distributed import distributed_context
    from specchat.train.frozen_target import FrozenTarget
    from specchat.train.train_head import HeadTrainingRequest, train_and_install_head, train_head_as_worker
    from specchat.train.trainer import TrainingBudget
    from specchat.train.training_prompts import read_training_prompts, split_prompts

    out = options["out"].absolute()
    if out.resolve().is_relative_to(EMBEDDED.resolve()):
        raise UsageError(f"--out {out}: the embedded models stay as they are; choose another folder")
    if start is not None and start.resolve() == out.resolve():
        raise UsageError(f"--out {out}: this is the head that goes on; choose another folder")
    profile = _load_profile_by_name(options["profile"])
    questions = read_training_prompts(options["data"], history_path())
    questions = split_prompts(questions, options["held_out"], options["most"])
    models, ranks = profile.models, distributed_context()
    loading = LoadOptions(models.dtype, ranks.device(models.device), profile.limits.context)
    target = FrozenTarget(options["target"] or models.target, loading, profile.prompt.system)
    effort = (
        TrainingBudget(tokens=options["tokens"]) if options["tokens"] else TrainingBudget(minutes=options["minutes"])
    )
    order = HeadTrainingRequest(
        kind, out, start, _baseline_head(against, kind, target, profile), effort, options["limit"],
        seed=options["seed"], installs_anyway=options["is_forced"], distributed=ranks,
    )  # fmt: skip
    if ranks.is_main_process:
        train_and_install_head(order, target, questions, _print_stderr)
    else:
        train_head_as_worker(order, target, questions)


def _load_profile_by_name(name: str) -> Profile:
    options = {option.parameter_name: None for option in PROFILE_OPTIONS}
    return resolve_profile({**options, "exact": None, "profile": name})


def _baseline_head(against: str, kind: str, target: FrozenTarget, profile: Profile) -> Path | None:
    """The head to beat. One that was named must fit the target; one of the profile counts if it does."""
    from specchat.errors import ModelError
    from specchat.heads.detect import find_head, inspect_head, target_dimensions
    from specchat.heads.spec import mismatches

    if against == AGAINST_NONE:
        return None
    if against != AGAINST_PROFILE:
        return find_head(against)
    for source in profile.models.heads:
        name = source
        if source == "embedded":
            if target.source != "embedded":
                continue
            name = f"embedded/{kind}"
        try:
            spec = inspect_head(find_head(name))
        except ModelError as error:
            _print_stderr(f"{error}; it is not tried against")
            continue
        if spec.kind == kind and not mismatches(spec, target_dimensions(target.folder)):
            return spec.source
    return None


def _print_stderr(line: str) -> None:
    click.echo(line, err=True)
