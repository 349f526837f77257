"""Find the installed plugins and their extensions.

Discovery runs at the first lookup of a name that is not built in, or of a list of names. Without a plugin it only lists
the folders of `sys.path`: importlib.metadata and pluggy take longer to import than everything else that a thin client
does, so they are imported only when there is a plugin. A fault of a plugin is printed once, as one line on stderr; the
plugin is left out, and everything else continues.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
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
KINDS = (
    "drafters", "heads", "decoding_forms", "network_quantizers", "gguf_networks", "completers", "sketch_mergers",
    "servers", "commands", "slash_commands", "context_loaders", "tool_sources",
)  # fmt: skip
NAME_PATTERN, WORD_PATTERN = re.compile(r"[a-z][a-z0-9_-]+"), re.compile(r"[a-z]+")
EXTENSION_NAME_PATTERNS: Mapping[str, re.Pattern[str]] = {
    kind: WORD_PATTERN if kind in ("slash_commands", "tool_sources") else NAME_PATTERN for kind in KINDS
}


@dataclass(frozen=True)
class Plugin:
    """An installed plugin: its package, its extensions by kind, and its fault ("" for none)."""

    name: str
    package: str = ""
    version: str = ""
    extensions: Mapping[str, tuple[Extension, ...]] = field(default_factory=dict[str, tuple[Extension, ...]])
    error: str = ""


def find_extensions(kind: str, reserved_names: Collection[str] = ()) -> Mapping[str, Extension]:
    """The extensions of a kind (one of `KINDS`) by name, without the `reserved_names`."""
    _warn_about_plugins()
    return _warn_about_conflicts(kind, frozenset(reserved_names))


def left_out(kind: str, extension: Extension, reserved_names: Collection[str] = ()) -> str:
    """That another one has the name of this extension; "" where it has it itself."""
    if _kept_extensions(kind, frozenset(reserved_names)).get(extension.name) is extension:
        return ""
    return f"{kind.removesuffix('s').replace('_', ' ')} {extension.name!r} is left out, the name is taken"


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """All plugins that are installed and not turned off, also the broken ones, by name. Prints no warnings."""
    names = os.environ.get(PLUGINS_VARIABLE)
    chosen = None if names is None else tuple(name.strip() for name in names.split(",") if name.strip())
    if chosen == ():
        return ()
    plugins = dict[str, Plugin]()
    for entry in _entry_points() if any(entry_point_files()) else ():
        if chosen is None or entry.name in chosen:
            first = plugins.get(entry.name)
            plugins[entry.name] = _duplicate(first, entry) if first else _load_plugin(entry)
    missing = [name for name in chosen or () if name not in plugins]
    error = f"{PLUGINS_VARIABLE} names it, and it is not installed"
    return (*plugins.values(), *(Plugin(name, error=error) for name in missing))


def entry_point_files() -> Iterator[Path]:
    """The metadata files that name plugins, in the folders that Python imports from.

    Every command and every connection to the host asks it of hundreds of packages; `Path` would double the time.
    """
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith(METADATA_SUFFIXES)]  # noqa: PTH208
        except OSError:  # a zip file, or a folder that does not exist
            continue
        for name in sorted(names):
            path = os.path.join(folder, name, "entry_points.txt")  # noqa: PTH118
            with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:  # noqa: PTH123
                if ENTRY_POINT_SECTION in file.read():
                    yield Path(path)


def print_warning(message: str) -> None:
    """One line on stderr. Commands whose stderr an editor inserts as text have closed it before this."""
    print(f"specchat: {message}", file=sys.stderr)


def _entry_points() -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group="specchat"), key=lambda entry: entry.name)


def _duplicate(first: Plugin, entry: EntryPoint) -> Plugin:
    """The plugin of two packages with the same name: it is unclear which one is meant, so neither is loaded."""
    packages = f"{first.package} and {entry.dist.name if entry.dist else 'another package'}"
    return replace(first, extensions={}, error=f"{packages} both have a plugin of this name; uninstall one")


def _load_plugin(entry: EntryPoint) -> Plugin:
    plugin = Plugin(entry.name, entry.dist.name, entry.dist.version) if entry.dist else Plugin(entry.name)
    try:
        return replace(plugin, extensions=_extensions_of(entry))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may fail in any way
        return replace(plugin, error=error_text(error))


def _extensions_of(entry: EntryPoint) -> dict[str, tuple[Extension, ...]]:
    """Call the hooks of a plugin. Each plugin has its own manager, so that it cannot break the calls of another."""
    import pluggy

    from specchat.plugins import hooks

    manager = pluggy.PluginManager(hooks.ENTRY_POINT_GROUP)
    manager.add_hookspecs(hooks)
    manager.register(entry.load(), entry.name)
    manager.check_pending()
    extensions = dict[str, tuple[Extension, ...]]()
    for kind in EXTENSION_NAME_PATTERNS:
        results = cast("list[object]", getattr(manager.hook, f"register_{kind}")())
        extensions[kind] = tuple(each for result in results for each in _validated(kind, result, entry.name))
    return {kind: each for kind, each in extensions.items() if each}


def _validated(kind: str, result: object, plugin_name: str) -> Iterator[Extension]:
    hook, pattern, names = f"register_{kind}", EXTENSION_NAME_PATTERNS[kind], set[str]()
    if not isinstance(result, list | tuple):
        raise TypeError(f"{hook} must return a list of extensions, not {type(result).__name__}")
    for extension in cast("Sequence[object]", result):
        if not isinstance(extension, Extension):
            raise TypeError(f"{hook} must return a list of extensions, not of {type(extension).__name__}")
        if not pattern.fullmatch(extension.name):
            raise ValueError(f"{hook}: {extension.name!r} is not a valid name; it must match {pattern.pattern}")
        if extension.name in names:
            raise ValueError(f"{hook}: {extension.name!r} is registered twice")
        names.add(extension.name)
        yield replace(extension, plugin_name=plugin_name)


@cache
def _kept_extensions(kind: str, reserved: frozenset[str]) -> Mapping[str, Extension]:
    """The first extension with a name keeps it."""
    kept = dict[str, Extension]()
    for extension in (each for plugin in installed_plugins() for each in plugin.extensions.get(kind, ())):
        if extension.name not in reserved:
            kept.setdefault(extension.name, extension)
    return kept


@cache
def _warn_about_plugins() -> None:
    for plugin in installed_plugins():
        if plugin.error:
            print_warning(f"plugin {plugin.name} is left out: {plugin.error}")


@cache
def _warn_about_conflicts(kind: str, reserved: frozenset[str]) -> Mapping[str, Extension]:
    for plugin in installed_plugins():
        for fault in filter(None, (left_out(kind, each, reserved) for each in plugin.extensions.get(kind, ()))):
            print_warning(f"plugin {plugin.name}: {fault}")
    return _kept_extensions(kind, reserved)
