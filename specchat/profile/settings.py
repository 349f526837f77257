"""The settings of a conversation: one frozen value, resolved here, stored with it and sent with each of its requests.

The strongest first:

    changes     what was changed in the conversation: `/temperature`, `/model`
    options     what it began with: the options of the command, the environment, the project file; and options beside
                `-c` and `-r`
    own         the profile, those that it extends, and the user file, as they were when the profile was chosen
    the rest    the advice of the model and the defaults, which depend on the models that result from the above

`profile` is the result. A front end resolves it, and the engine process takes it as it comes: that may have been
started in another folder, with another environment. Knows no screen, no protocol and no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, cast

from specchat.errors import ProfileError
from specchat.profile.keys import Profile, options_source
from specchat.profile.model_advice import model_sources
from specchat.profile.profile_files import DEFAULT_PROFILE, EDIT_PROFILE, read_profile_chain
from specchat.profile.validation import SettingsSource, merge_sources

EMPTY: Mapping[str, Any] = {}
KEYS_OF_ENGINE = ("models.", "speculation.")


@dataclass(frozen=True)
class Settings:
    """Flat keys as in `options_source`, without those that are None; rules are lists. `name` names the profile."""

    name: str
    profile: Profile
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """With these keys changed. A key with None is given back to the options and the profile."""
        changes = {key: value for key, value in {**self.changes, **values}.items() if value is not None}
        return _resolved(self.name, self.own, self.options, changes)

    def with_profile(self, name: str) -> Settings:
        """Another profile, which is read now. It takes the changes back, and not the options."""
        return read_settings(name, self.options)

    def with_options(self, values: Mapping[str, Any]) -> Settings:
        """With options that are typed now, which are stronger than earlier changes of their keys."""
        changes = {key: value for key, value in self.changes.items() if key not in values}
        return _resolved(self.name, self.own, {**self.options, **values}, changes)

    def for_edits(self) -> Settings:
        """Those of an edit beside the conversation, with its models and its drafter.

        The profile is `edit` unless another one than the default was chosen.
        """
        kept = {key: value for key, value in self.changes.items() if key.startswith(KEYS_OF_ENGINE)}
        return self.with_profile(EDIT_PROFILE if self.name == DEFAULT_PROFILE else self.name).changed(kept)

    @property
    def values(self) -> dict[str, Any]:
        """Every key of every table: `{"sampling.temperature": 0.7}`."""
        tables = {name: table for name, table in asdict(self.profile).items() if isinstance(table, dict)}
        return {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()}

    def to_json(self) -> dict[str, Any]:
        layers = {"own": self.own, "options": self.options, "changes": self.changes}
        tables = asdict(replace(self.profile, routes=(), mcp=()))
        profile = {
            name: {key: each for key, each in table.items() if each is not None} if isinstance(table, dict) else table
            for name, table in tables.items()
        }
        return {"name": self.name, **layers, "profile": profile}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Settings:
        """Those of `to_json`; of a name alone, or with a profile of a newer version, the profile's file is read."""
        name = str(stored.get("name") or DEFAULT_PROFILE)
        own, options, changes, tables = (_table(stored, part) for part in ("own", "options", "changes", "profile"))
        routes = [*options.get("routes", ()), *own.get("routes", ())]  # they are long, and stand there
        source = SettingsSource("conversation", {**tables, "routes": routes}, lambda _path: "the stored profile")
        try:
            if tables:
                return Settings(name, merge_sources(Profile(), [source]).value, own, options, changes)
        except ProfileError:
            pass
        return read_settings(name, options).changed(changes)


def read_settings(name: str = DEFAULT_PROFILE, options: Mapping[str, Any] = EMPTY) -> Settings:
    """The settings of a new conversation with this profile, or with the profile in this file."""
    return settings_of(name, read_profile_chain(name), [options_source(options)])


def settings_of(name: str, chain: Sequence[SettingsSource], sources: Sequence[SettingsSource]) -> Settings:
    """The same with options from several sources, the weakest first, whose places stand in errors."""
    profile = merge_sources(Profile(), (*chain, *sources)).value
    own = flat_values(source for source in chain if source.resolve_for is None)
    return Settings(_lasting(name), replace(profile, mcp=()), own, flat_values(sources))


def flat_values(sources: Iterable[SettingsSource]) -> dict[str, Any]:
    """What these sources set, the weakest first. Not the MCP servers, which belong to a front end."""
    tables = (source.tables for source in sources)
    return reduce(_merge_tables, ({name: each[name] for name in each if name != "mcp"} for each in tables), {})


def _resolved(name: str, own: Mapping[str, Any], options: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    base = options_source(own, lambda _path: f"profile {name}")
    sources = (*model_sources(), base, options_source(options), options_source(changes))
    return Settings(name, merge_sources(Profile(), sources).value, own, options, changes)


def _lasting(name: str) -> str:
    """A name that means the same in any folder: a path becomes absolute."""
    return str(Path(name).expanduser().absolute()) if name.endswith(".toml") or "/" in name else name


def _merge_tables(weaker: dict[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of stronger tables replace weaker ones; lists of rules are joined, the stronger first."""
    merged = dict(weaker)
    for name, value in stronger.items():
        if isinstance(value, Mapping):
            merged |= {f"{name}.{key}": each for key, each in cast("Mapping[str, Any]", value).items()}
        elif isinstance(value, list | tuple):
            merged[name] = [*cast("Sequence[Any]", value), *merged.get(name, ())]
        else:
            merged[name] = value
    return merged


def _table(stored: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = stored.get(name) or {}
    if not isinstance(value, dict):
        raise ProfileError(f"the settings of a conversation: {name} must be an object, not {value!r}")
    return cast("dict[str, Any]", value)
