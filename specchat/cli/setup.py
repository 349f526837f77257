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

from specchat.cli.bytes_format import Gigabytes
from specchat.cli.models_recommend import ALTERNATIVES, EMBEDDED, described, for_device, in_words, look_around
from specchat.cli.save_profile import pull_command, save_profile
from specchat.hub.local_files import cached_folder
from specchat.hub.machine import Machine, simulated
from specchat.hub.recommend import CONTEXT, PURPOSES, Pair, Wish, profile_text
from specchat.profile import configuration_folder

LENGTHS = {"4k": 4096, "8k": CONTEXT, "16k": 16384, "32k": 32768}
LEAVE = "q"
DEFAULT_NAME = "best"
USUAL_NAME = "chat"  # a profile of this name is the one that is used when none is named


@dataclass(frozen=True)
class Answers:
    """Who answers: a person at a terminal, or the defaults."""

    are_defaults: bool

    def choose(self, question: str, choices: tuple[str, ...], default: str) -> str:
        """One of these words; click.Abort for who wants to leave."""
        if self.are_defaults:
            return default
        chosen = click.prompt(
            f"{question} ({LEAVE} leaves)", type=click.Choice((*choices, LEAVE)), default=default, err=True
        )
        if chosen == LEAVE:
            raise click.Abort
        return str(chosen)

    def agree(self, question: str) -> bool:
        """Yes or no."""
        return self.are_defaults or click.confirm(question, default=True, err=True)


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
    answers = Answers(is_agreed or not has_person)
    machine = None if memory else look_around()
    try:
        wish = _wish(answers)
        pair = _pair(answers, machine, memory, wish)
        if pair is None:
            return 0
        if not (is_agreed or has_person):
            click.echo("\n".join(_would_do(pair)))
            return 0
        is_here = _fetched(answers, pair, is_without_pull=is_without_pull)
        name = _name(answers, is_here=is_here, is_forced=is_forced)
    except click.Abort:
        _tell("nothing was changed; 'specchat demo' and 'specchat chat' work as they are")
        return 0
    path = save_profile(name, profile_text(pair, name), is_forced=is_forced)
    click.echo(f"written: {path}")
    click.echo("\n".join(_next(pair, name, is_here=is_here)))
    return 0


def _wish(answers: Answers) -> Wish:
    purpose = answers.choose("What is it for?", PURPOSES, PURPOSES[0])
    length = answers.choose("How long do texts become, in tokens?", tuple(LENGTHS), "8k")
    return Wish(purpose, LENGTHS[length])


def _pair(answers: Answers, machine: Machine | None, memory: float | None, wish: Wish) -> Pair | None:
    """The pair that was chosen from a table; None when there is nothing to choose."""
    device = simulated(memory or 0) if machine is None else machine.best
    pairs = for_device(device, wish, machine)[: 1 + ALTERNATIVES]
    if not pairs:
        click.echo(f"{in_words(device)}: {EMBEDDED}")
        return None
    _tell(in_words(device))
    for number, pair in enumerate(pairs, start=1):
        first, *why = described(pair)
        _tell(f"{number}  {first}")
        for line in why:
            _tell(line)
    numbers = tuple(str(number) for number in range(1, len(pairs) + 1))
    return pairs[int(answers.choose("Which one?", numbers, "1")) - 1]


def _fetched(answers: Answers, pair: Pair, *, is_without_pull: bool) -> bool:
    """Whether all of it lies on this disk in the end."""
    wanted = [name for name in (pair.entry.id, pair.drafting.id) if name]
    if all(cached_folder(name) for name in wanted):
        return True
    is_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    if is_without_pull or is_offline or not answers.agree(f"Download it now ({' and '.join(wanted)})?"):
        return False
    from specchat.cli.models import Models

    beside = ["--draft", pair.drafting.id] if pair.drafting.id else []
    Models.later["pull"].load().main(["--yes", pair.entry.id, *beside], standalone_mode=False)
    return True


def _name(answers: Answers, *, is_here: bool, is_forced: bool) -> str:
    """Used by itself only when it can work at once: a profile without its model would break the next question."""
    taken = (configuration_folder() / "profiles" / f"{USUAL_NAME}.toml").exists() and not is_forced
    if not is_here or taken:
        return DEFAULT_NAME
    usual = answers.choose("Use it whenever no profile is named?", ("yes", "no"), "yes")
    return USUAL_NAME if usual == "yes" else DEFAULT_NAME


def _would_do(pair: Pair) -> Iterator[str]:
    first, *why = described(pair)
    yield f"would take {first}"
    yield from why
    yield f"would run: {pull_command(pair)}"
    yield f"would write: {configuration_folder() / 'profiles' / f'{DEFAULT_NAME}.toml'}"
    yield "nobody is here to ask and --yes is not given, so nothing was changed"


def _next(pair: Pair, name: str, *, is_here: bool) -> Iterator[str]:
    """The two commands to try."""
    if not is_here:
        yield f"fetch it first:  {pull_command(pair)}"
    chosen = "" if name == USUAL_NAME else f" --profile {name}"
    yield f"then talk:       specchat chat{chosen}"
    yield f"or edit a file:  specchat edit{chosen} FILE 'what to change'"


def _tell(line: str) -> None:
    click.echo(line, err=True)
