"""The options that every command with a model takes, and the profile they make together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from specchat.profile import DTYPES, VARIANTS, Profile, load_profile

Function = TypeVar("Function", bound=Callable[..., Any])


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


OVERRIDING = (
    Overriding("--variant", "speculation.variant", click.Choice(VARIANTS), "Who guesses ahead."),
    Overriding("--seed", "sampling.seed", int, "The same seed gives the same answer."),
    Overriding("--temperature", "sampling.temperature", float, "0 takes the likeliest token, always."),
    Overriding("--top-p", "sampling.top_p", float, "Only the likeliest tokens that reach this share together."),
    Overriding("--top-k", "sampling.top_k", int, "Only this many of the likeliest tokens; 0 means all."),
    Overriding("--min-p", "sampling.min_p", float, "Only tokens with this share of the likeliest one's probability."),
    Overriding("--max-tokens", "limits.answer", int, "Longest answer, in tokens."),
    Overriding("--dtype", "models.dtype", click.Choice(DTYPES), "The numbers to compute with."),
    Overriding("--target", "models.target", str, "The model that writes: embedded, a folder, or a hub id."),
    Overriding("--draft", "models.draft", str, "The model that guesses; '' for none."),
)


def profile_options(command: Function) -> Function:
    """Give a command `--profile` and all that overrides it; it gets them as keywords for `chosen_profile`."""
    exact = click.option("--exact", is_flag=True, default=None, help="Bit-equal to plain decoding in every dtype.")
    command = exact(command)
    for option in reversed(OVERRIDING):
        command = click.option(option.flag, option.parameter, type=option.type, help=option.help)(command)
    return click.option("--profile", "-P", default="chat", show_default=True, help="A profile's name or file.")(command)


def chosen_profile(options: dict[str, Any]) -> Profile:
    """The profile that the options ask for, checked."""
    changes = {option.key: options[option.parameter] for option in OVERRIDING}
    return load_profile(options["profile"]).override(changes | {"speculation.exact": options["exact"]})
