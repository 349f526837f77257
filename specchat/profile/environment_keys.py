"""Keys from the environment: SPECCHAT_SAMPLING_TEMPERATURE=0.7 is `temperature` in `[sampling]`.

Read by the commands that a person starts. The engine process never looks: it outlives the shell that started it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast

from specchat.errors import ProfileError
from specchat.profile.keys import Profile
from specchat.profile.validation import TYPE_NAMES, KeyPath, SettingsSource, did_you_mean, key_types

PREFIX = "SPECCHAT_"
BOOLEAN_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def environment_source(environment: Mapping[str, str]) -> SettingsSource:
    """What the environment wants; ProfileError for a variable that names no key, or a value that is none."""
    tables: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX):
            continue
        table, _, word = name.removeprefix(PREFIX).lower().partition("_")
        if not is_dataclass(key_types(Profile).get(table)) or not word:
            continue  # SPECCHAT_CONFIG and its like are no keys
        kinds = key_types(cast("type", key_types(Profile)[table]))
        if word not in kinds:
            known = [variable_name(table, each) for each in kinds]
            raise ProfileError(f"{name}: no key has this name;{did_you_mean(name, known)} known are {', '.join(known)}")
        tables.setdefault(table, {})[word] = _parse_value(name, value, kinds[word])
    return SettingsSource("environment", tables, _location_of)


def variable_name(table: str, key: str) -> str:
    """The variable that sets a key: `variable("sampling", "top_p")` is "SPECCHAT_SAMPLING_TOP_P"."""
    return f"{PREFIX}{table}_{key}".upper()


def _location_of(path: KeyPath) -> str:
    return variable_name(str(path[0]), str(path[1])) if len(path) > 1 else "the environment"


def _parse_value(name: str, value: str, kind: Any) -> Any:
    try:
        return BOOLEAN_WORDS[value.strip().lower()] if kind is bool else kind(value)
    except (ValueError, KeyError):
        raise ProfileError(f"{name} must be {TYPE_NAMES[kind]}, not {value!r}") from None
