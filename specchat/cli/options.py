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
from specchat.profile import ACCEPTANCE_TESTS, DRAFTER_NAMES, DRAFTERS, DTYPES, WEIGHT_FORMATS, Profile, all_drafters
from specchat.profile.environment_keys import environment_source
from specchat.profile.keys import as_tables
from specchat.profile.profile_files import ProfileChain, read_profile_chain
from specchat.profile.validation import KeyPath, MergedSettings, SettingsSource, merge_sources

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])
MODEL_KEYS = ("models.target", "models.draft")


@dataclass(frozen=True)
class ProfileOption:
    """An option that replaces one key of the profile."""

    flag: str
    key: str
    type: Any
    help: str

    @property
    def parameter_name(self) -> str:
        """The name under which click passes it: `--top-p` is `top_p`."""
        return self.flag.removeprefix("--").replace("-", "_")


class VariantParam(click.ParamType):
    """The name of somebody who guesses. Plugins are looked up for a list of names, and for a name that is not ours."""

    name = "variant"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, as click shows choices."""
        return f"[{'|'.join(all_drafters())}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, if there is one of that name."""
        return value if value in DRAFTER_NAMES else click.Choice(tuple(all_drafters())).convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in all_drafters() if name.startswith(incomplete)]


DRAFTER_HELP = "; ".join(f"{name}: {guesser.description}" for name, guesser in DRAFTERS.items())
PROFILE_OPTIONS = (
    ProfileOption("--variant", "speculation.variant", VariantParam(), f"Who guesses ahead. {DRAFTER_HELP}."),
    ProfileOption(
        "--rule",
        "speculation.rule",
        click.Choice(ACCEPTANCE_TESTS),
        "How guesses are judged above temperature 0. dice: a seed gives the text of plain decoding; classic: "
        "min(1, p/q), a text that is as likely but not the same.",
    ),
    ProfileOption("--seed", "sampling.seed", int, "The same seed gives the same answer."),
    ProfileOption("--temperature", "sampling.temperature", float, "0 takes the likeliest token, always."),
    ProfileOption("--top-p", "sampling.top_p", float, "Only the likeliest tokens that reach this share together."),
    ProfileOption("--top-k", "sampling.top_k", int, "Only this many of the likeliest tokens; 0 means all."),
    ProfileOption(
        "--min-p", "sampling.min_p", float, "Only tokens with this share of the likeliest one's probability."
    ),
    ProfileOption("--max-tokens", "limits.answer", int, "Longest answer, in tokens."),
    ProfileOption("--dtype", "models.dtype", click.Choice(DTYPES), "The numbers to compute with."),
    ProfileOption(
        "--weights",
        "models.weights",
        click.Choice(WEIGHT_FORMATS),
        "How the target's weights are held: float as saved; 8 bits take a half of bfloat16, 4 bits a quarter.",
    ),
    ProfileOption(
        "--draft-weights", "models.draft_weights", click.Choice(WEIGHT_FORMATS), "How the draft's weights are held."
    ),
    ProfileOption("--target", "models.target", str, "The model that writes: embedded, a folder, or a hub id."),
    ProfileOption("--draft", "models.draft", str, "The model that guesses; '' for none."),
)
FLAG_BY_KEY = {option.key: option.flag for option in PROFILE_OPTIONS} | {"speculation.exact": "--exact"}


def profile_options(command: CommandFunction) -> CommandFunction:
    """Give a command `--profile` and all that overrides it; it gets them as keywords for `chosen_profile`."""
    exact = click.option("--exact", is_flag=True, default=None, help="Bit-equal to plain decoding in every dtype.")
    command = exact(command)
    for option in reversed(PROFILE_OPTIONS):
        command = click.option(option.flag, option.parameter_name, type=option.type, help=option.help)(command)
    return click.option("--profile", "-P", default="chat", show_default=True, help="A profile's name or file.")(command)


@dataclass(frozen=True)
class ProfileLayers:
    """What a person wants, layer by layer: a profile and the user's file, and what counts more than they do."""

    profile_chain: ProfileChain
    override_sources: tuple[SettingsSource, ...]

    def resolve(self) -> MergedSettings[Profile]:
        """The profile that comes of it, checked, and the origin of every value."""
        return merge_sources(self.profile_chain.base, (*self.profile_chain.sources, *self.override_sources))

    def overrides(self) -> dict[str, Any]:
        """What the engine process is told beside the name of the profile: flat keys, and rules as a list."""
        self.resolve()
        return reduce(_merge_tables, (source.tables for source in self.override_sources), {})


def read_profile_layers(options: Mapping[str, Any], project_folder: Path | None = None) -> ProfileLayers:
    """What the options, the environment, the project of a folder (or of this one) and the profile want together."""
    flat = {option.key: options[option.parameter_name] for option in PROFILE_OPTIONS} | {
        "speculation.exact": options["exact"]
    }
    named = SettingsSource("option", as_tables(_with_absolute_paths(flat)), _flag_for_key)
    project = trusted_project(project_folder or Path.cwd())
    between = (project.source(),) if project else ()
    return ProfileLayers(read_profile_chain(options["profile"]), (*between, environment_source(os.environ), named))


def resolve_profile(options: Mapping[str, Any]) -> Profile:
    """The profile that the options ask for, checked."""
    return read_profile_layers(options).resolve().value


def _flag_for_key(path: KeyPath) -> str:
    return FLAG_BY_KEY.get(".".join(str(each) for each in path), "options")


def _with_absolute_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Models that are folders by their absolute names: the engine process lives in another folder."""
    whole = dict(values)
    for key in MODEL_KEYS:
        if whole[key] and Path(whole[key]).exists():
            whole[key] = str(Path(whole[key]).absolute())
    return whole


def _merge_tables(weaker: dict[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of stronger tables over weaker ones; lists of rules add up, the stronger first."""
    merged = dict(weaker)
    for name, value in stronger.items():
        if isinstance(value, Mapping):
            merged |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            merged[name] = [*value, *merged.get(name, ())]
    return merged
