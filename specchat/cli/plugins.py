"""`specchat plugins`: which are installed, what each adds, and what is wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click

from specchat.plugins.discovery import CHOSEN, NAMES, Plugin, clashes
from specchat.plugins.discovery import plugins as installed

SHOWN: Mapping[str, str] = {
    "drafters": "--variant {name}",
    "backends": "backend = {name}",
    "commands": "specchat {name}",
    "slash_commands": "/{name} {arguments}",
    "context_loaders": "@{name}:…",
    "checks": "checks *{name}",
}


@click.command()
@click.option("--json", "is_json", is_flag=True, help="As one JSON object.")
def plugins(is_json: bool) -> None:
    """List what other packages add to specchat.

    SPECCHAT_LOAD_PLUGINS="" turns all of them off, SPECCHAT_LOAD_PLUGINS=a,b all but those.
    """
    taken = _taken()
    if is_json:
        click.echo(json.dumps([_as_json(plugin, taken) for plugin in installed()], indent=1))
        return
    lines = [line for plugin in installed() for line in _lines(plugin, taken)]
    nothing = "none is installed" if CHOSEN not in os.environ else f"none; {CHOSEN} is set"
    click.echo("\n".join(lines) or nothing)


def _taken() -> Mapping[str, Collection[str]]:
    """The names that we have ourselves."""
    from specchat.cli.main import COMMANDS
    from specchat.profile import GUESSERS, OWN, SERVERS
    from specchat.tui.screen_commands import EVERY

    return {"drafters": GUESSERS, "backends": (OWN, *SERVERS), "commands": COMMANDS, "slash_commands": EVERY}


def _lines(plugin: Plugin, taken: Mapping[str, Collection[str]]) -> Iterator[str]:
    package = f" ({plugin.package} {plugin.version})" if plugin.package else ""
    yield f"{plugin.name}{package}" + ("" if plugin.offers or plugin.trouble else ": adds nothing")
    if plugin.trouble:
        yield f"  left out: {plugin.trouble}"
    for kind, said in plugin.offers.items():
        lost = {clash.offer.name: clash for clash in clashes(plugin, kind, taken.get(kind, ()))}
        for offer in said:
            shown = SHOWN[kind].format(name=offer.name, arguments=offer.arguments).strip()
            yield f"  {shown:<22} {offer.what}" if offer.name not in lost else f"  {lost[offer.name]}"


def _as_json(plugin: Plugin, taken: Mapping[str, Collection[str]]) -> dict[str, Any]:
    left = [str(clash) for kind in NAMES for clash in clashes(plugin, kind, taken.get(kind, ()))]
    return {**asdict(plugin), "left_out": left}
