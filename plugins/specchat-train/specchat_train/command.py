"""`specchat train`: trains heads or a small draft model for a target, on the questions of its user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specchat.cli.completion import complete_models, complete_profiles
from specchat.cli.options import resolve_profile
from specchat.errors import UsageError
from specchat.host.spawn import history_path
from specchat.plugins.own_plugins import missing_variant
from specchat.profile.keys import Profile
from specchat.profile.shipped_drafters import with_shipped_drafters

if TYPE_CHECKING:
    from specchat_train.frozen_target import FrozenTarget

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])
HEAD_KINDS = ("eagle3", "eagle", "medusa", "mtp")
AGAINST_PROFILE = "profile"  # the default of --against
AGAINST_NONE = "none"
AT_LEAST_ONE = click.IntRange(min=1)
TRAINING_OPTIONS = (
    click.option(
        "--target", help="The target: embedded, a folder, or a hub id [the profile's].", shell_complete=complete_models
    ),
    click.option(
        "--data",
        required=True,
        help="The questions: 'sessions' (stored conversations), a folder of texts, or JSON lines.",
    ),
    click.option(
        "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder of the result."
    ),
    click.option("--minutes", type=click.FloatRange(min=0.01), default=4.0, show_default=True, help="Training time."),
    click.option("--tokens", type=AT_LEAST_ONE, help="Train on this many tokens instead of --minutes."),
    click.option("--max-prompts", type=AT_LEAST_ONE, default=400, show_default=True, help="Most questions."),
    click.option(
        "--held-out", type=AT_LEAST_ONE, default=50, show_default=True, help="Turns held out for the comparison."
    ),
    click.option(
        "--max-tokens", type=click.IntRange(min=8), default=120, show_default=True, help="Most tokens of an answer."
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of the initial weights and the order of batches."),
    click.option("--force", "installs_anyway", is_flag=True, help="Install the head even if it is not better."),
    click.option(
        "--profile",
        "-P",
        default="chat",
        show_default=True,
        help="The profile with the models and dtype.",
        shell_complete=complete_profiles,
    ),
)


@click.group()
def train() -> None:
    """Train heads for your target on your questions. Nothing leaves this machine."""


def _training_options(command: CommandFunction) -> CommandFunction:
    for option in reversed(TRAINING_OPTIONS):
        command = option(command)
    return command


@train.command("head")
@click.option("--kind", type=click.Choice(HEAD_KINDS), default="eagle3", show_default=True, help="The kind of head.")
@click.option(
    "--against",
    default=AGAINST_PROFILE,
    show_default=True,
    help="The head to beat; 'profile': that of the profile; 'none': prompt lookup.",
)
@_training_options
def head(kind: str, against: str, **options: Any) -> None:
    """Train a new head on the target's own answers, and install it if it is better than the present one."""
    _train_and_install(kind, None, against, options)


@train.command("continue")
@click.argument("start", metavar="HEAD")
@_training_options
def continue_head(start: str, **options: Any) -> None:
    """Train HEAD (a folder, or embedded/eagle3) further, and install the result if it is better than HEAD."""
    from specchat.drafters.heads.detect import inspect_head
    from specchat.hub.find_models import HEAD_ROLE, find_model

    folder = find_model(start, HEAD_ROLE)
    kind = inspect_head(folder).kind
    if kind not in HEAD_KINDS:
        raise UsageError(f"{start}: heads of kind {kind} cannot be trained further; known are {', '.join(HEAD_KINDS)}")
    _train_and_install(kind, folder, str(folder), options)


@train.command("draft")
@click.option("--start", help="A draft model to train further [the profile's]; '' for a new one.")
@_training_options
def draft(start: str | None, **options: Any) -> None:
    """Train a small draft model with the target's vocabulary, and install it if it is better."""
    from specchat.hub.find_models import find_model
    from specchat.weights.gguf.gguf_conversion import safetensors_folder

    models = with_shipped_drafters(resolve_profile({"profile": options["profile"]}).models)
    is_of_profile = options["target"] in (None, models.target)
    source = start if start is not None else models.draft if is_of_profile else ""
    folder = safetensors_folder(find_model(source, role="draft")) if source else None
    _train_and_install("draft", folder, str(folder) if folder else AGAINST_NONE, options)


def _train_and_install(kind: str, start: Path | None, against: str, options: dict[str, Any]) -> None:
    from specchat.weights.load_options import EMBEDDED, LoadOptions
    from specchat_train.distributed import distributed_context
    from specchat_train.frozen_target import FrozenTarget
    from specchat_train.train_head import HeadTrainingRequest, train_and_install_head, train_head_as_worker
    from specchat_train.trainer import TrainingBudget
    from specchat_train.training_prompts import read_training_prompts, split_prompts

    if missing := missing_variant(kind):  # nothing could compare, or use, the head
        raise UsageError(missing)
    out = options["out"].absolute()
    if out.resolve().is_relative_to(EMBEDDED.resolve()):
        raise UsageError(f"--out {out}: the embedded models are read-only; choose another folder")
    if start is not None and start.resolve() == out.resolve():
        raise UsageError(f"--out {out}: this is the head to train further; choose another folder")
    profile = resolve_profile({"profile": options["profile"]})
    prompts = read_training_prompts(options["data"], history_path())
    prompts = split_prompts(prompts, options["held_out"], options["max_prompts"])
    models, distributed = profile.models, distributed_context()
    load_options = LoadOptions(models.dtype, distributed.device(models.device), profile.limits.context)
    target = FrozenTarget(options["target"] or models.target, load_options, profile.prompt.system)
    tokens = options["tokens"]
    budget = TrainingBudget(tokens=tokens) if tokens else TrainingBudget(minutes=options["minutes"])
    request = HeadTrainingRequest(
        kind, out, start, _baseline_head(against, kind, target, profile), budget, options["max_tokens"],
        seed=options["seed"], installs_anyway=options["installs_anyway"], distributed=distributed,
    )  # fmt: skip
    if distributed.is_main_process:
        train_and_install_head(request, target, prompts, print_progress)
    else:
        train_head_as_worker(request, target, prompts)


def print_progress(message: str) -> None:
    print(message, file=sys.stderr)


def _baseline_head(against: str, kind: str, target: FrozenTarget, profile: Profile) -> Path | None:
    """The head to beat. A named one must fit the target; one of the profile counts only if it fits."""
    from specchat.drafters.heads.detect import inspect_head, target_dimensions
    from specchat.drafters.heads.spec import mismatches
    from specchat.errors import ModelError
    from specchat.hub.find_models import HEAD_ROLE, find_model

    if against == AGAINST_NONE:
        return None
    if against != AGAINST_PROFILE:
        return find_model(against, HEAD_ROLE)
    for source in with_shipped_drafters(replace(profile.models, target=target.source)).heads:
        name = source
        if source == "embedded":
            if target.source != "embedded":
                continue
            name = f"embedded/{kind}"
        try:
            spec = inspect_head(find_model(name, HEAD_ROLE))
        except ModelError as error:
            print_progress(f"{error}; it is not compared")
            continue
        if spec.kind == kind and not mismatches(spec, target_dimensions(target.folder)):
            return spec.source
    return None
