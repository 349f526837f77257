"""Profile keys from environment variables: SPECCHAT_SAMPLING_TEMPERATURE=0.7 is `temperature` in `[sampling]`.

The values of a list, as in SPECCHAT_MODELS_HEADS, are separated by commas.

Only the commands that a user starts read them. The engine process does not, because it outlives the shell that
started it.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast, get_origin

from specchat.errors import ProfileError
from specchat.profile.keys import Profile
from specchat.profile.validation import TYPE_NAMES, KeyPath, SettingsSource, did_you_mean, key_types

PREFIX = "SPECCHAT_"
BOOLEAN_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def environment_source(environment: Mapping[str, str]) -> SettingsSource:
    """The settings of the environment; ProfileError for an unknown key or a value of another type."""
    tables: dict[str, Any] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX):
            continue
        table, _, key = name.removeprefix(PREFIX).lower().partition("_")
        if not is_dataclass(key_types(Profile).get(table)) or not key:
            continue  # SPECCHAT_CONFIG and the like are not keys
        kind = cast("type", key_types(Profile)[table])
        if key not in key_types(kind):
            known = [variable_name(table, each) for each in key_types(kind)]
            raise ProfileError(f"{name}: no key has this name;{did_you_mean(name, known)} known are {', '.join(known)}")
        tables.setdefault(table, {})[key] = _parse_value(name, text, key_types(kind)[key])
    return SettingsSource("environment", tables, _location_of)


def variable_name(table: str, key: str) -> str:
    """The variable of a key: `variable_name("sampling", "top_p")` is "SPECCHAT_SAMPLING_TOP_P"."""
    return f"{PREFIX}{table}_{key}".upper()


def _location_of(path: KeyPath) -> str:
    return variable_name(str(path[0]), str(path[1])) if len(path) > 1 else "the environment"


def _parse_value(name: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(filter(None, text.split(",")))
    try:
        return BOOLEAN_WORDS[text.strip().lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise ProfileError(f"{name} must be {TYPE_NAMES[kind]}, not {text!r}") from None
