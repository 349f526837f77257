"""Profiles: what somebody prefers, as TOML. Checked once, here, and trusted everywhere else.

    values.py        every key there is            toml.py         files, and the line of each key
    guessers.py      who can guess ahead           files.py        profiles by name, the user's file
    checking.py      tables against dataclasses    environment.py  SPECCHAT_<TABLE>_<KEY>
    schema.py        the same for editors          project.py      .specchat.toml, where it is trusted
    tuned.py         what was measured for these models on this machine

What counts, the strongest first: option, environment, project file, profile, user file, tuned, default. Options,
environment and project file are the business of the commands that a person starts; the others are read by the engine
process itself. Knows no model and imports no torch.
"""

from specchat.profile.drafter_names import DRAFTER_NAMES, DRAFTERS, all_drafters
from specchat.profile.keys import (
    ACCEPTANCE_TESTS,
    BUILTIN_BACKEND,
    DEVICES,
    DTYPES,
    REQUEST_KINDS,
    SERVER_BACKENDS,
    WEIGHT_FORMATS,
    Limits,
    Models,
    Profile,
    Prompt,
    RouteRule,
    Sampling,
    Speculation,
)
from specchat.profile.profile_files import configuration_folder, load_profile, profile_names

__all__ = [
    "ACCEPTANCE_TESTS", "DEVICES", "DTYPES", "DRAFTERS", "REQUEST_KINDS", "BUILTIN_BACKEND", "SERVER_BACKENDS", "DRAFTER_NAMES", "WEIGHT_FORMATS", "Limits",
    "Models", "Profile", "Prompt", "RouteRule", "Sampling", "Speculation", "configuration_folder", "all_drafters",
    "load_profile", "profile_names",
]  # fmt: skip
