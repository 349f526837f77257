"""Profiles: the user's settings as TOML files. They are validated here once, and trusted everywhere else.

    keys.py               every key, with its meaning, permitted values and default
    drafter_names.py      the names of all drafters
    validation.py         check tables against dataclasses, merge sources, keep the origin of each value
    toml_lines.py         TOML files, and the line of each key
    profile_files.py      profiles by name, what they extend, the user file; writes one that a command made
    project_file.py       .specchat.toml, and whether it is trusted
    environment_keys.py   SPECCHAT_<TABLE>_<KEY>
    model_advice.py       what suits the target: the sampling that its authors advise, and model_advice.toml
    shipped_drafters.py   the default target, and the drafters that are part of specchat for a target
    settings.py           the settings of a conversation: one value from all of these sources
    screen_file.py        `screen.toml` beside them: where it is, and its switches
    json_schema.py        the JSON schema of a profile, for editors

Precedence, the strongest first: what was changed in the conversation, option, environment, project file, profile, user
file, model and advice, default. Front ends read all of them; the engine process is sent the result.
Knows no model and imports no torch.
"""

from specchat.profile.drafter_names import DRAFTER_NAMES, DRAFTERS, all_drafters
from specchat.profile.keys import (
    AGENT_MODES,
    AGENT_OFF,
    AGENT_ON,
    AGENT_PLAN,
    ANSWER_FORMATS,
    BUILTIN_BACKEND,
    FREE_ANSWER,
    GRAMMAR_ANSWER,
    REQUEST_KINDS,
    SERVER_BACKENDS,
    THINKING_MODES,
    WEIGHT_CHOICES,
    Limits,
    Models,
    Profile,
    Prompt,
    RouteRule,
    Sampling,
)
from specchat.profile.profile_files import DEFAULT_PROFILE, EDIT_PROFILE, load_profile, profile_names

__all__ = [
    "AGENT_MODES", "AGENT_OFF", "AGENT_ON", "AGENT_PLAN", "ANSWER_FORMATS",
    "BUILTIN_BACKEND", "DEFAULT_PROFILE", "DRAFTERS", "DRAFTER_NAMES", "EDIT_PROFILE",
    "FREE_ANSWER", "GRAMMAR_ANSWER", "REQUEST_KINDS", "SERVER_BACKENDS", "THINKING_MODES", "WEIGHT_CHOICES",
    "Limits", "Models", "Profile", "Prompt", "RouteRule", "Sampling", "all_drafters",
    "load_profile", "profile_names",
]  # fmt: skip
