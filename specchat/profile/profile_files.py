"""Profiles on disk: where they are, what they extend, and the user's file beneath them all.

    shipped profiles   profiles/ of a source checkout, or the copy inside an installed package
    own profiles       profiles/ in the configuration folder of the user; SPECCHAT_CONFIG names another folder
    any file           given by its path
    user file          config.toml in the configuration folder: what every profile begins with
    tuned              what `specchat tune` measured for the models that come of all others (`tuned.py`)

An own profile hides a shipped one of the same name and may still extend it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from specchat.errors import ProfileError
from specchat.profile.keys import Order, Profile, Rule, as_tables
from specchat.profile.toml_lines import TomlFile, parse_toml, read_toml
from specchat.profile.tuned_values import tuned_layer
from specchat.profile.validation import Source, hints, nearest, settle

LONGEST_CHAIN = 8  # profiles that extend one another
OF_PROFILES_ALONE = ("name", "description", "extends")
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Chain:
    """A profile with all that it extends, the user's file and what was tuned, the weakest first."""

    name: str
    description: str
    sources: tuple[Source, ...]

    @property
    def base(self) -> Profile:
        """What the sources are put on."""
        return Profile(name=self.name, description=self.description)


def load_profile(name: str, overrides: Mapping[str, object] | None = None) -> Profile:
    """The profile with this name, or the one in this file; with `overrides` of flat keys, as `Profile.override` takes.

    Overriding is done here where models may be overridden: what was tuned is tuned for some models and not for others.
    """
    chain = read_chain(name)
    above = [Source("option", as_tables(overrides or {}), lambda _path: "options")]
    return settle(chain.base, [*chain.sources, *above]).value


def read_chain(name: str) -> Chain:
    """Everything that the profile of this name says and inherits."""
    links = list(_links(_find(name, frozenset())))
    own = links[0].tables
    settings = [
        replace(link, tables={key: value for key, value in link.tables.items() if key not in OF_PROFILES_ALONE})
        for link in links
    ]
    sources = [link.source(f"profile {link.path.stem}") for link in reversed(settings)]
    user = [read_settings(user_file(), user_file().read_bytes()).source("user file")] if user_file().is_file() else []
    layers = (tuned_layer(), *user, *sources)
    return Chain(own.get("name", links[0].path.stem), own.get("description", ""), layers)


def read_settings(path: Path, content: bytes) -> TomlFile:
    """A file that is no profile, but says what is different everywhere, or in a project."""
    file = parse_toml(path, content, known_words())
    for key in OF_PROFILES_ALONE:
        if key in file.tables:
            raise ProfileError(f"{file.at((key,))}: {key!r} belongs into a profile, not into {path.name}")
    return file


def profile_names() -> tuple[str, ...]:
    """Every profile that can be asked for by its name."""
    return tuple(sorted({file.stem for folder in _folders() for file in folder.glob("*.toml")}))


def configuration_folder() -> Path:
    """Where the user's own files are."""
    chosen = os.environ.get("SPECCHAT_CONFIG")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_config_path

    return user_config_path("specchat", appauthor=False)


def user_file() -> Path:
    """What the user wants in every profile that does not say otherwise."""
    return configuration_folder() / "config.toml"


def known_words() -> tuple[str, ...]:
    """Every word that may stand before an equals sign or in a header."""
    kinds = [kind for kind in hints(Profile).values() if isinstance(kind, type) and kind is not str]
    inner = [word for kind in (*kinds, Rule, Order) for word in hints(cast("type", kind))]
    return (*hints(Profile), *inner, "extends")


def _folders() -> tuple[Path, ...]:
    return (configuration_folder() / "profiles", PACKAGE / "profiles", PACKAGE.parent / "profiles")


def _find(name: str, seen: frozenset[Path]) -> Path:
    """The file of a profile, past the files that are extending it right now."""
    if name.endswith(".toml") or "/" in name or os.sep in name:
        return Path(name).expanduser().resolve()
    for folder in _folders():
        path = (folder / f"{name}.toml").resolve()
        if path.is_file() and path not in seen:
            return path
    known = profile_names()
    raise ProfileError(f"unknown profile {name!r};{nearest(name, known)} known are {', '.join(known) or 'none'}")


def _links(path: Path) -> Iterator[TomlFile]:
    """A profile, what it extends, what that extends..."""
    seen: frozenset[Path] = frozenset()
    while True:
        link = read_toml(path, known_words())
        for key in OF_PROFILES_ALONE:
            if not isinstance(link.tables.get(key, ""), str):
                raise ProfileError(f"{link.at((key,))}: {key} must be a text in quotes, not {link.tables[key]!r}")
        yield link
        if "extends" not in link.tables:
            return
        seen |= {path}
        if len(seen) > LONGEST_CHAIN:
            raise ProfileError(f"{path}: more than {LONGEST_CHAIN} profiles extend one another")
        path = _parent(link, link.tables["extends"], seen)


def _parent(link: TomlFile, name: str, seen: frozenset[Path]) -> Path:
    beside = (link.path.parent / Path(name).expanduser()).resolve()
    try:
        found = beside if name.endswith(".toml") else _find(name, seen)
    except ProfileError as error:
        raise ProfileError(f"{link.at(('extends',))}: extends an {error}") from error
    if found in seen:
        raise ProfileError(f"{link.at(('extends',))}: extends {name!r}, which leads back to {found.name}")
    return found
