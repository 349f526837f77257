"""Which plugins are installed, and what they offer.

Asked for the first time when somebody names what we do not have, or wants a list. Without a plugin that costs a look
at the names in the folders that Python imports from: importlib.metadata and pluggy, which take longer than all else
that a thin client does, are imported only where there is one. What is wrong with a plugin is one line on stderr, once;
the plugin is left out, and everything else goes on.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from specchat.plugins.extension import Extension, error_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGINS_VARIABLE = "SPECCHAT_LOAD_PLUGINS"  # unset: all; "": none; "a,b": these
METADATA_SUFFIXES = (".dist-info", ".egg-info")
ENTRY_POINT_SECTION = "[specchat]"  # of entry_points.txt
NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]+")
EXTENSION_NAME_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "drafters": NAME_PATTERN,
    "backends": NAME_PATTERN,
    "commands": NAME_PATTERN,
    "slash_commands": re.compile(r"[a-z]+"),
    "context_loaders": NAME_PATTERN,
    "checks": re.compile(r"\.[a-z0-9]+"),
}


@dataclass(frozen=True)
class Plugin:
    """An installed plugin: its package, what it offers by kind, and what is wrong with it ("" for nothing)."""

    name: str
    package: str = ""
    version: str = ""
    extensions: Mapping[str, tuple[Extension, ...]] = field(default_factory=dict[str, tuple[Extension, ...]])
    error: str = ""


@dataclass(frozen=True)
class NameConflict:
    """An offer that is left out because its name is taken."""

    kind: str
    extension: Extension

    def __str__(self) -> str:
        return f"{self.kind.removesuffix('s').replace('_', ' ')} {self.extension.name!r} is left out, the name is taken"


def find_extensions(kind: str, reserved_names: Collection[str] = ()) -> Mapping[str, Extension]:
    """What plugins offer of this kind (a key of `NAMES`), by name; `taken` are the names that we have ourselves."""
    _warn_about_plugins()
    return _warn_about_conflicts(kind, frozenset(reserved_names))


def name_conflicts(plugin: Plugin, kind: str, reserved_names: Collection[str] = ()) -> list[NameConflict]:
    """The offers of a plugin that are left out."""
    return [clash for clash in _resolve_conflicts(kind, frozenset(reserved_names))[1] if clash.extension.plugin_name == plugin.name]


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Every plugin that is installed and not turned off, the broken ones too, by name. Tells nobody."""
    chosen = _selected_plugins()
    if chosen is not None and not chosen:
        return ()
    found = dict[str, Plugin]()
    for entry in _entry_points() if any(entry_point_files()) else ():
        if chosen is None or entry.name in chosen:
            found[entry.name] = _duplicate(found[entry.name], entry) if entry.name in found else _load_plugin(entry)
    missing = [name for name in chosen or () if name not in found]
    return (*found.values(), *(Plugin(name, error=f"{PLUGINS_VARIABLE} names it, and it is not installed") for name in missing))


def entry_point_files() -> Iterator[Path]:
    """The metadata files that name plugins, in the folders that Python imports from."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith(METADATA_SUFFIXES)]  # noqa: PTH208 (quicker)
        except OSError:  # a zip file, or a folder that is not there
            continue
        for name in sorted(names):
            path = Path(folder, name, "entry_points.txt")
            try:
                is_plugin = ENTRY_POINT_SECTION in path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue
            if is_plugin:
                yield path


def print_warning(message: str) -> None:
    """One line on stderr, where it does no harm: editors that take stderr for text have it closed by then."""
    print(f"specchat: {message}", file=sys.stderr)


def _selected_plugins() -> tuple[str, ...] | None:
    wanted = os.environ.get(PLUGINS_VARIABLE)
    return None if wanted is None else tuple(name.strip() for name in wanted.split(",") if name.strip())


def _entry_points() -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group="specchat"), key=lambda entry: entry.name)


def _duplicate(first: Plugin, entry: EntryPoint) -> Plugin:
    """Which of two packages is meant cannot be known, so neither is taken."""
    other = entry.dist.name if entry.dist else "another package"
    return replace(first, offers={}, trouble=f"{first.package} and {other} both call a plugin so; uninstall one")


def _load_plugin(entry: EntryPoint) -> Plugin:
    plugin = Plugin(entry.name, entry.dist.name, entry.dist.version) if entry.dist else Plugin(entry.name)
    try:
        return replace(plugin, offers=_extensions_of(entry))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others may fail in every way
        return replace(plugin, trouble=error_text(error))


def _extensions_of(entry: EntryPoint) -> dict[str, tuple[Extension, ...]]:
    """What a plugin says. It has a manager of its own, so that no plugin can break the calls of another."""
    import pluggy

    from specchat.plugins import hooks

    manager = pluggy.PluginManager(hooks.ENTRY_POINT_GROUP)
    manager.add_hookspecs(hooks)
    manager.register(entry.load(), entry.name)
    manager.check_pending()
    offered = dict[str, tuple[Extension, ...]]()
    for kind in EXTENSION_NAME_PATTERNS:
        answers = cast("list[object]", getattr(manager.hook, f"register_{kind}")())
        offered[kind] = tuple(offer for answer in answers for offer in _validated(kind, answer, entry.name))
    return {kind: said for kind, said in offered.items() if said}


def _validated(kind: str, answer: object, plugin: str) -> Iterator[Extension]:
    if not isinstance(answer, list | tuple):
        raise TypeError(f"register_{kind} must return a list of offers, not {type(answer).__name__}")
    names = set[str]()
    for offer in cast("Sequence[object]", answer):
        if not isinstance(offer, Extension):
            raise TypeError(f"register_{kind} must return a list of offers, not of {type(offer).__name__}")
        if not EXTENSION_NAME_PATTERNS[kind].fullmatch(offer.name):
            raise ValueError(f"register_{kind}: {offer.name!r} is no name here; it must match {EXTENSION_NAME_PATTERNS[kind].pattern}")
        if offer.name in names:
            raise ValueError(f"register_{kind}: {offer.name!r} is there twice")
        names.add(offer.name)
        yield replace(offer, plugin=plugin)


@cache
def _resolve_conflicts(kind: str, taken: frozenset[str]) -> tuple[Mapping[str, Extension], Sequence[NameConflict]]:
    """Those who come first have the name."""
    kept, left = dict[str, Extension](), list[NameConflict]()
    for plugin in installed_plugins():
        for offer in plugin.extensions.get(kind, ()):
            if offer.name in taken or offer.name in kept:
                left.append(NameConflict(kind, offer))
            else:
                kept[offer.name] = offer
    return kept, left


@cache
def _warn_about_plugins() -> None:
    for plugin in installed_plugins():
        if plugin.error:
            print_warning(f"plugin {plugin.name} is left out: {plugin.error}")


@cache
def _warn_about_conflicts(kind: str, taken: frozenset[str]) -> Mapping[str, Extension]:
    kept, left = _resolve_conflicts(kind, taken)
    for clash in left:
        print_warning(f"plugin {clash.extension.plugin_name}: {clash}")
    return kept
