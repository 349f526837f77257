"""Keys from the environment: SPECCHAT_SAMPLING_TEMPERATURE=0.7 is `temperature` in `[sampling]`.

Read by the commands that a person starts. The engine process never looks: it outlives the shell that started it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, cast

from specchat.errors import ProfileError
from specchat.profile.keys import Profile
from specchat.profile.validation import TYPE_NAMES, KeyPath, Source, hints, nearest

PREFIX = "SPECCHAT_"
YES_AND_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def environment_source(environment: Mapping[str, str]) -> Source:
    """What the environment wants; ProfileError for a variable that names no key, or a value that is none."""
    tables: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX):
            continue
        table, _, word = name.removeprefix(PREFIX).lower().partition("_")
        if not is_dataclass(hints(Profile).get(table)) or not word:
            continue  # SPECCHAT_CONFIG and its like are no keys
        kinds = hints(cast("type", hints(Profile)[table]))
        if word not in kinds:
            known = [variable(table, each) for each in kinds]
            raise ProfileError(f"{name}: no key has this name;{nearest(name, known)} known are {', '.join(known)}")
        tables.setdefault(table, {})[word] = _read(name, value, kinds[word])
    return Source("environment", tables, _where)


def variable(table: str, key: str) -> str:
    """The variable that sets a key: `variable("sampling", "top_p")` is "SPECCHAT_SAMPLING_TOP_P"."""
    return f"{PREFIX}{table}_{key}".upper()


def _where(path: KeyPath) -> str:
    return variable(str(path[0]), str(path[1])) if len(path) > 1 else "the environment"


def _read(name: str, value: str, kind: Any) -> Any:
    try:
        return YES_AND_NO[value.strip().lower()] if kind is bool else kind(value)
    except (ValueError, KeyError):
        raise ProfileError(f"{name} must be {TYPE_NAMES[kind]}, not {value!r}") from None
