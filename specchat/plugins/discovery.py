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

from specchat.plugins.offer import Offer, in_words

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

CHOSEN = "SPECCHAT_LOAD_PLUGINS"  # unset: all; "": none; "a,b": these
METADATA = (".dist-info", ".egg-info")
SECTION = "[specchat]"  # of entry_points.txt
WORD = re.compile(r"[a-z][a-z0-9_-]+")
NAMES: Mapping[str, re.Pattern[str]] = {
    "drafters": WORD,
    "backends": WORD,
    "commands": WORD,
    "slash_commands": re.compile(r"[a-z]+"),
    "context_loaders": WORD,
    "checks": re.compile(r"\.[a-z0-9]+"),
}


@dataclass(frozen=True)
class Plugin:
    """An installed plugin: its package, what it offers by kind, and what is wrong with it ("" for nothing)."""

    name: str
    package: str = ""
    version: str = ""
    offers: Mapping[str, tuple[Offer, ...]] = field(default_factory=dict[str, tuple[Offer, ...]])
    trouble: str = ""


@dataclass(frozen=True)
class Clash:
    """An offer that is left out because its name is taken."""

    kind: str
    offer: Offer

    def __str__(self) -> str:
        return f"{self.kind.removesuffix('s').replace('_', ' ')} {self.offer.name!r} is left out, the name is taken"


def offers(kind: str, taken: Collection[str] = ()) -> Mapping[str, Offer]:
    """What plugins offer of this kind (a key of `NAMES`), by name; `taken` are the names that we have ourselves."""
    _tell_of_plugins()
    return _tell_of_clashes(kind, frozenset(taken))


def clashes(plugin: Plugin, kind: str, taken: Collection[str] = ()) -> list[Clash]:
    """The offers of a plugin that are left out."""
    return [clash for clash in _sorted_out(kind, frozenset(taken))[1] if clash.offer.plugin == plugin.name]


@cache
def plugins() -> tuple[Plugin, ...]:
    """Every plugin that is installed and not turned off, the broken ones too, by name. Tells nobody."""
    chosen = _chosen()
    if chosen is not None and not chosen:
        return ()
    found = dict[str, Plugin]()
    for entry in _entries() if any(declarations()) else ():
        if chosen is None or entry.name in chosen:
            found[entry.name] = _again(found[entry.name], entry) if entry.name in found else _asked(entry)
    missing = [name for name in chosen or () if name not in found]
    return (*found.values(), *(Plugin(name, trouble=f"{CHOSEN} names it, and it is not installed") for name in missing))


def declarations() -> Iterator[Path]:
    """The metadata files that name plugins, in the folders that Python imports from."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = [name for name in os.listdir(folder or ".") if name.endswith(METADATA)]  # noqa: PTH208 (quicker)
        except OSError:  # a zip file, or a folder that is not there
            continue
        for name in sorted(names):
            path = Path(folder, name, "entry_points.txt")
            try:
                is_plugin = SECTION in path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue
            if is_plugin:
                yield path


def complain(message: str) -> None:
    """One line on stderr, where it does no harm: editors that take stderr for text have it closed by then."""
    print(f"specchat: {message}", file=sys.stderr)


def _chosen() -> tuple[str, ...] | None:
    wanted = os.environ.get(CHOSEN)
    return None if wanted is None else tuple(name.strip() for name in wanted.split(",") if name.strip())


def _entries() -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group="specchat"), key=lambda entry: entry.name)


def _again(first: Plugin, entry: EntryPoint) -> Plugin:
    """Which of two packages is meant cannot be known, so neither is taken."""
    other = entry.dist.name if entry.dist else "another package"
    return replace(first, offers={}, trouble=f"{first.package} and {other} both call a plugin so; uninstall one")


def _asked(entry: EntryPoint) -> Plugin:
    plugin = Plugin(entry.name, entry.dist.name, entry.dist.version) if entry.dist else Plugin(entry.name)
    try:
        return replace(plugin, offers=_offers_of(entry))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others may fail in every way
        return replace(plugin, trouble=in_words(error))


def _offers_of(entry: EntryPoint) -> dict[str, tuple[Offer, ...]]:
    """What a plugin says. It has a manager of its own, so that no plugin can break the calls of another."""
    import pluggy

    from specchat.plugins import hooks

    manager = pluggy.PluginManager(hooks.GROUP)
    manager.add_hookspecs(hooks)
    manager.register(entry.load(), entry.name)
    manager.check_pending()
    offered = dict[str, tuple[Offer, ...]]()
    for kind in NAMES:
        answers = cast("list[object]", getattr(manager.hook, f"register_{kind}")())
        offered[kind] = tuple(offer for answer in answers for offer in _checked(kind, answer, entry.name))
    return {kind: said for kind, said in offered.items() if said}


def _checked(kind: str, answer: object, plugin: str) -> Iterator[Offer]:
    if not isinstance(answer, list | tuple):
        raise TypeError(f"register_{kind} must return a list of offers, not {type(answer).__name__}")
    names = set[str]()
    for offer in cast("Sequence[object]", answer):
        if not isinstance(offer, Offer):
            raise TypeError(f"register_{kind} must return a list of offers, not of {type(offer).__name__}")
        if not NAMES[kind].fullmatch(offer.name):
            raise ValueError(f"register_{kind}: {offer.name!r} is no name here; it must match {NAMES[kind].pattern}")
        if offer.name in names:
            raise ValueError(f"register_{kind}: {offer.name!r} is there twice")
        names.add(offer.name)
        yield replace(offer, plugin=plugin)


@cache
def _sorted_out(kind: str, taken: frozenset[str]) -> tuple[Mapping[str, Offer], Sequence[Clash]]:
    """Those who come first have the name."""
    kept, left = dict[str, Offer](), list[Clash]()
    for plugin in plugins():
        for offer in plugin.offers.get(kind, ()):
            if offer.name in taken or offer.name in kept:
                left.append(Clash(kind, offer))
            else:
                kept[offer.name] = offer
    return kept, left


@cache
def _tell_of_plugins() -> None:
    for plugin in plugins():
        if plugin.trouble:
            complain(f"plugin {plugin.name} is left out: {plugin.trouble}")


@cache
def _tell_of_clashes(kind: str, taken: frozenset[str]) -> Mapping[str, Offer]:
    kept, left = _sorted_out(kind, taken)
    for clash in left:
        complain(f"plugin {clash.offer.plugin}: {clash}")
    return kept
