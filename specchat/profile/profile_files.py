"""Profiles on disk: their folders, the profiles that they extend, and the user file that applies to all of them.

    shipped profiles   profiles/ of a source checkout, or the copy inside an installed package
    own profiles       profiles/ in the configuration folder of the user (`specchat/paths.py`)
    any file           given by its path
    default target     the starter model if it is on this disk (`shipped_drafters.py`)
    user file          config.toml in the configuration folder: the base of every profile
    model              advised by the authors of the target (`model_advice.py`)

A user's profile hides a shipped one of the same name and may still extend it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from specchat.errors import InputError, ProfileError
from specchat.paths import configuration_folder
from specchat.profile.keys import McpServer, Profile, RouteRule, options_source
from specchat.profile.model_advice import model_sources
from specchat.profile.shipped_drafters import default_target_source
from specchat.profile.toml_lines import TomlFile, parse_toml, read_toml
from specchat.profile.validation import SettingsSource, did_you_mean, key_types, merge_sources

MAX_EXTENDS_DEPTH = 8
PROFILE_ONLY_KEYS = ("name", "description", "extends")
PROFILE_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")  # of one that a command writes
PACKAGE = Path(__file__).parents[1]
DEFAULT_PROFILE, EDIT_PROFILE = "chat", "edit"  # of questions, and of edits


def load_profile(name: str, overrides: Mapping[str, object] | None = None) -> Profile:
    """The profile with this name or in this file, with `overrides` of flat keys as in `Profile.override`.

    Use `overrides` here when they may change the models, because the advice depends on the models.
    """
    return merge_sources(Profile(), (*read_profile_chain(name), options_source(overrides or {}))).value


def read_profile_chain(name: str) -> tuple[SettingsSource, ...]:
    """A profile with the profiles that it extends, the user file and advice, the weakest first."""
    links = list(_extends_chain(_find_profile(name, frozenset())))
    own = links[0].tables
    settings = [
        replace(link, tables={key: value for key, value in link.tables.items() if key not in PROFILE_ONLY_KEYS})
        for link in links
    ]
    sources = [link.source(f"profile {link.path.stem}") for link in reversed(settings)]
    if (user := user_config_file()).is_file():
        sources.insert(0, read_settings_file(user, user.read_bytes()).source("user file"))
    named = options_source({"name": own.get("name", links[0].path.stem), "description": own.get("description")})
    return (*model_sources(), *default_target_source(), *sources, named)


def read_settings_file(path: Path, content: bytes) -> TomlFile:
    """Parse a user file or a project file, which must not contain the keys of profiles only."""
    file = parse_toml(path, content, known_keys())
    for key in PROFILE_ONLY_KEYS:
        if key in file.tables:
            raise ProfileError(f"{file.location_of((key,))}: {key!r} belongs in a profile, not in {path.name}")
    return file


def save_profile(name: str, text: str, *, overwrites: bool = False) -> Path:
    """Write a profile that a command made among those of the user. ProfileError when it is not valid, or exists."""
    if not PROFILE_NAME.fullmatch(name) or name.endswith(".toml"):
        raise ProfileError(f"{name!r}: not a name of letters, digits, dots and dashes")
    path = configuration_folder() / "profiles" / f"{name}.toml"
    if path.exists() and not overwrites:
        raise ProfileError(f"{path} already exists; choose another name, remove it, or use --force if there is one")
    partial = path.with_name(f"{name}.{os.getpid()}.toml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        try:
            load_profile(str(partial))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def profile_names() -> tuple[str, ...]:
    return tuple(sorted({file.stem for folder in _folders() for file in folder.glob("*.toml")}))


def user_config_file() -> Path:
    return configuration_folder() / "config.toml"


def known_keys() -> tuple[str, ...]:
    kinds = [kind for kind in key_types(Profile).values() if isinstance(kind, type) and kind is not str]
    inner = [word for kind in (*kinds, RouteRule, McpServer) for word in key_types(cast("type", kind))]
    return (*key_types(Profile), *inner, "extends")


def _folders() -> tuple[Path, ...]:
    return (configuration_folder() / "profiles", PACKAGE / "profiles", PACKAGE.parent / "profiles")


def _find_profile(name: str, seen: frozenset[Path]) -> Path:
    """The file of a profile; skips `seen`, so that a profile can extend one of the same name."""
    if name.endswith(".toml") or "/" in name or os.sep in name:
        return Path(name).expanduser().resolve()
    for folder in _folders():
        path = (folder / f"{name}.toml").resolve()
        if path.is_file() and path not in seen:
            return path
    known = profile_names()
    raise ProfileError(f"unknown profile {name!r};{did_you_mean(name, known)} known are {', '.join(known) or 'none'}")


def _extends_chain(path: Path) -> Iterator[TomlFile]:
    seen: frozenset[Path] = frozenset()
    while True:
        link = read_toml(path, known_keys())
        for key in PROFILE_ONLY_KEYS:
            if not isinstance(link.tables.get(key, ""), str):
                where, value = link.location_of((key,)), link.tables[key]
                raise ProfileError(f"{where}: {key} must be a text in quotes, not {value!r}")
        yield link
        if "extends" not in link.tables:
            return
        seen |= {path}
        if len(seen) > MAX_EXTENDS_DEPTH:
            raise ProfileError(f"{path}: more than {MAX_EXTENDS_DEPTH} profiles extend each other")
        path = _parent(link, link.tables["extends"], seen)


def _parent(link: TomlFile, name: str, seen: frozenset[Path]) -> Path:
    location = link.location_of(("extends",))
    sibling = (link.path.parent / Path(name).expanduser()).resolve()
    try:
        parent = sibling if name.endswith(".toml") else _find_profile(name, seen)
    except ProfileError as error:
        raise ProfileError(f"{location}: extends an {error}") from error
    if parent in seen:
        raise ProfileError(f"{location}: extends {name!r}, which leads back to {parent.name}")
    return parent
