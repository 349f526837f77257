"""`specchat setup`: from the memory that is free to a profile that uses it, in at most five answers.

Every question has a default, Enter takes it, and `q` or Ctrl-D leaves with nothing changed. Without a terminal, and
without --yes, it says what it would do and does nothing. The embedded models answer all the while.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from specchat.cli.models_recommend import (
    ALTERNATIVE_COUNT,
    NOTHING_FITS_MESSAGE,
    describe_device,
    describe_pair,
    measure_machine,
    recommend_for_device,
)
from specchat.cli.save_profile import pull_command, save_profile
from specchat.cli.size_options import Gigabytes
from specchat.hub.local_models import cached_folder
from specchat.hub.machine import Machine, simulated_gpu
from specchat.hub.recommend import DEFAULT_CONTEXT_TOKENS, PURPOSES, ModelPair, PairRequirements, profile_text
from specchat.profile import configuration_folder

CONTEXT_CHOICES = {"4k": 4096, "8k": DEFAULT_CONTEXT_TOKENS, "16k": 16384, "32k": 32768}
QUIT_ANSWER = "q"
SUGGESTED_NAME = "best"
DEFAULT_PROFILE = "chat"  # a profile of this name is the one that is used when none is named


@dataclass(frozen=True)
class SetupPrompts:
    """Who answers: a person at a terminal, or the defaults."""

    uses_defaults: bool

    def choose(self, question: str, choices: tuple[str, ...], default: str) -> str:
        """One of these words; click.Abort for who wants to leave."""
        if self.uses_defaults:
            return default
        chosen = click.prompt(
            f"{question} ({QUIT_ANSWER} leaves)", type=click.Choice((*choices, QUIT_ANSWER)), default=default, err=True
        )
        if chosen == QUIT_ANSWER:
            raise click.Abort
        return str(chosen)

    def confirm(self, question: str) -> bool:
        """Yes or no."""
        return self.uses_defaults or click.confirm(question, default=True, err=True)


@click.command()
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="Take every default, the download included.")
@click.option("--no-pull", "is_without_pull", is_flag=True, help="Write the profile, and download nothing.")
@click.option("--memory", type=Gigabytes(), help="As if there were a card of so many GB with a screen on it.")
@click.option("--force", "is_forced", is_flag=True, help="Replace a profile of the same name.")
def setup(memory: float | None, *, is_agreed: bool, is_without_pull: bool, is_forced: bool) -> int:
    """Find the best pair for this machine, fetch it, and write a profile that uses it: five answers at most.

    Skip it whenever you like: the embedded models work without it.
    """
    has_person = sys.stdin.isatty() and sys.stderr.isatty()
    answers = SetupPrompts(is_agreed or not has_person)
    machine = None if memory else measure_machine()
    try:
        wish = _ask_requirements(answers)
        pair = _choose_pair(answers, machine, memory, wish)
        if pair is None:
            return 0
        if not (is_agreed or has_person):
            click.echo("\n".join(_dry_run_lines(pair)))
            return 0
        is_here = _download_if_wanted(answers, pair, is_without_pull=is_without_pull)
        name = _choose_profile_name(answers, is_here=is_here, is_forced=is_forced)
    except click.Abort:
        _print_stderr("nothing was changed; 'specchat demo' and 'specchat chat' work as they are")
        return 0
    path = save_profile(name, profile_text(pair, name), overwrites=is_forced)
    click.echo(f"written: {path}")
    click.echo("\n".join(_next_step_lines(pair, name, is_here=is_here)))
    return 0


def _ask_requirements(answers: SetupPrompts) -> PairRequirements:
    purpose = answers.choose("What is it for?", PURPOSES, PURPOSES[0])
    length = answers.choose("How long do texts become, in tokens?", tuple(CONTEXT_CHOICES), "8k")
    return PairRequirements(purpose, CONTEXT_CHOICES[length])


def _choose_pair(
    answers: SetupPrompts, machine: Machine | None, memory: float | None, requirements: PairRequirements
) -> ModelPair | None:
    """The pair that was chosen from a table; None when there is nothing to choose."""
    device = simulated_gpu(memory or 0) if machine is None else machine.best_device
    pairs = recommend_for_device(device, requirements, machine)[: 1 + ALTERNATIVE_COUNT]
    if not pairs:
        click.echo(f"{describe_device(device)}: {NOTHING_FITS_MESSAGE}")
        return None
    _print_stderr(describe_device(device))
    for number, pair in enumerate(pairs, start=1):
        first, *why = describe_pair(pair)
        _print_stderr(f"{number}  {first}")
        for line in why:
            _print_stderr(line)
    numbers = tuple(str(number) for number in range(1, len(pairs) + 1))
    return pairs[int(answers.choose("Which one?", numbers, "1")) - 1]


def _download_if_wanted(answers: SetupPrompts, pair: ModelPair, *, is_without_pull: bool) -> bool:
    """Whether all of it lies on this disk in the end."""
    wanted = [name for name in (pair.entry.id, pair.drafter.id) if name]
    if all(cached_folder(name) for name in wanted):
        return True
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if is_without_pull or is_offline or not answers.confirm(f"Download it now ({' and '.join(wanted)})?"):
        return False
    from specchat.cli.models import ModelsGroup

    beside = ["--draft", pair.drafter.id] if pair.drafter.id else []
    ModelsGroup.lazy_commands["pull"].load().main(["--yes", pair.entry.id, *beside], standalone_mode=False)
    return True


def _choose_profile_name(answers: SetupPrompts, *, is_here: bool, is_forced: bool) -> str:
    """Used by itself only when it can work at once: a profile without its model would break the next question."""
    taken = (configuration_folder() / "profiles" / f"{DEFAULT_PROFILE}.toml").exists() and not is_forced
    if not is_here or taken:
        return SUGGESTED_NAME
    usual = answers.choose("Use it whenever no profile is named?", ("yes", "no"), "yes")
    return DEFAULT_PROFILE if usual == "yes" else SUGGESTED_NAME


def _dry_run_lines(pair: ModelPair) -> Iterator[str]:
    first, *why = describe_pair(pair)
    yield f"would take {first}"
    yield from why
    yield f"would run: {pull_command(pair)}"
    yield f"would write: {configuration_folder() / 'profiles' / f'{SUGGESTED_NAME}.toml'}"
    yield "nobody is here to ask and --yes is not given, so nothing was changed"


def _next_step_lines(pair: ModelPair, name: str, *, is_here: bool) -> Iterator[str]:
    """The two commands to try."""
    if not is_here:
        yield f"fetch it first:  {pull_command(pair)}"
    chosen = "" if name == DEFAULT_PROFILE else f" --profile {name}"
    yield f"then talk:       specchat chat{chosen}"
    yield f"or edit a file:  specchat edit{chosen} FILE 'what to change'"


def _print_stderr(line: str) -> None:
    click.echo(line, err=True)
