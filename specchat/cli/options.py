"""The options that every command with a model takes, and the profile they make with all that stands below them.

The strongest first: option, environment, project file (where it is trusted), profile, user file, default. The engine
process reads profiles and the user's file itself; the first three are known here alone and travel to it as overrides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from specchat.cli.project_trust import trusted_project
from specchat.profile import ACCEPT_RULES, DTYPES, GUESSERS, VARIANTS, WEIGHTS, Profile, every_guesser
from specchat.profile.environment_keys import environment_source
from specchat.profile.keys import as_tables
from specchat.profile.profile_files import Chain, read_chain
from specchat.profile.validation import KeyPath, Settled, Source, settle

Function = TypeVar("Function", bound=Callable[..., Any])
MODEL_KEYS = ("models.target", "models.draft")


@dataclass(frozen=True)
class Overriding:
    """An option that replaces one key of the profile."""

    flag: str
    key: str
    type: Any
    help: str

    @property
    def parameter(self) -> str:
        """The name under which click passes it: `--top-p` is `top_p`."""
        return self.flag.removeprefix("--").replace("-", "_")


class Variant(click.ParamType):
    """The name of somebody who guesses. Plugins are looked up for a list of names, and for a name that is not ours."""

    name = "variant"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, as click shows choices."""
        return f"[{'|'.join(every_guesser())}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, if there is one of that name."""
        return value if value in VARIANTS else click.Choice(tuple(every_guesser())).convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in every_guesser() if name.startswith(incomplete)]


GUESSES = "; ".join(f"{name}: {guesser.what}" for name, guesser in GUESSERS.items())
OVERRIDING = (
    Overriding("--variant", "speculation.variant", Variant(), f"Who guesses ahead. {GUESSES}."),
    Overriding(
        "--rule",
        "speculation.rule",
        click.Choice(ACCEPT_RULES),
        "How guesses are judged above temperature 0. dice: a seed gives the text of plain decoding; classic: "
        "min(1, p/q), a text that is as likely but not the same.",
    ),
    Overriding("--seed", "sampling.seed", int, "The same seed gives the same answer."),
    Overriding("--temperature", "sampling.temperature", float, "0 takes the likeliest token, always."),
    Overriding("--top-p", "sampling.top_p", float, "Only the likeliest tokens that reach this share together."),
    Overriding("--top-k", "sampling.top_k", int, "Only this many of the likeliest tokens; 0 means all."),
    Overriding("--min-p", "sampling.min_p", float, "Only tokens with this share of the likeliest one's probability."),
    Overriding("--max-tokens", "limits.answer", int, "Longest answer, in tokens."),
    Overriding("--dtype", "models.dtype", click.Choice(DTYPES), "The numbers to compute with."),
    Overriding(
        "--weights",
        "models.weights",
        click.Choice(WEIGHTS),
        "How the target's weights are held: float as saved; 8 bits take a half of bfloat16, 4 bits a quarter.",
    ),
    Overriding("--draft-weights", "models.draft_weights", click.Choice(WEIGHTS), "How the draft's weights are held."),
    Overriding("--target", "models.target", str, "The model that writes: embedded, a folder, or a hub id."),
    Overriding("--draft", "models.draft", str, "The model that guesses; '' for none."),
)
FLAGS = {option.key: option.flag for option in OVERRIDING} | {"speculation.exact": "--exact"}


def profile_options(command: Function) -> Function:
    """Give a command `--profile` and all that overrides it; it gets them as keywords for `chosen_profile`."""
    exact = click.option("--exact", is_flag=True, default=None, help="Bit-equal to plain decoding in every dtype.")
    command = exact(command)
    for option in reversed(OVERRIDING):
        command = click.option(option.flag, option.parameter, type=option.type, help=option.help)(command)
    return click.option("--profile", "-P", default="chat", show_default=True, help="A profile's name or file.")(command)


@dataclass(frozen=True)
class Choice:
    """What a person wants, layer by layer: a profile and the user's file, and what counts more than they do."""

    chain: Chain
    above: tuple[Source, ...]

    def settled(self) -> Settled[Profile]:
        """The profile that comes of it, checked, and the origin of every value."""
        return settle(self.chain.base, (*self.chain.sources, *self.above))

    def overrides(self) -> dict[str, Any]:
        """What the engine process is told beside the name of the profile: flat keys, and rules as a list."""
        self.settled()
        return reduce(_put_over, (source.tables for source in self.above), {})


def choice(options: Mapping[str, Any], folder: Path | None = None) -> Choice:
    """What the options, the environment, the project of a folder (or of this one) and the profile want together."""
    flat = {option.key: options[option.parameter] for option in OVERRIDING} | {"speculation.exact": options["exact"]}
    named = Source("option", as_tables(_with_whole_paths(flat)), _flag)
    project = trusted_project(folder or Path.cwd())
    between = (project.source(),) if project else ()
    return Choice(read_chain(options["profile"]), (*between, environment_source(os.environ), named))


def chosen_profile(options: Mapping[str, Any]) -> Profile:
    """The profile that the options ask for, checked."""
    return choice(options).settled().value


def _flag(path: KeyPath) -> str:
    return FLAGS.get(".".join(str(each) for each in path), "options")


def _with_whole_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Models that are folders by their absolute names: the engine process lives in another folder."""
    whole = dict(values)
    for key in MODEL_KEYS:
        if whole[key] and Path(whole[key]).exists():
            whole[key] = str(Path(whole[key]).absolute())
    return whole


def _put_over(below: dict[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of stronger tables over weaker ones; lists of rules add up, the stronger first."""
    merged = dict(below)
    for name, value in tables.items():
        if isinstance(value, Mapping):
            merged |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            merged[name] = [*value, *merged.get(name, ())]
    return merged
