"""`specchat plugins`: the installed plugins, what each adds, and its errors."""

import os
from collections.abc import Collection, Iterator, Mapping

import click

from specchat.cli.notes import print_rows
from specchat.own_tables import own_tables
from specchat.plugins.discovery import PLUGINS_VARIABLE, Plugin, installed_plugins, left_out

USAGE_BY_KIND: Mapping[str, str] = own_tables(__file__)


@click.command()
def plugins() -> None:
    """List what other packages add to specchat.

    SPECCHAT_LOAD_PLUGINS="" turns all of them off, SPECCHAT_LOAD_PLUGINS=a,b all but those.
    """
    builtin_names = _builtin_names()
    lines = [line for plugin in installed_plugins() for line in _lines(plugin, builtin_names)]
    nothing = "none is installed" if PLUGINS_VARIABLE not in os.environ else f"none; {PLUGINS_VARIABLE} is set"
    print_rows("\n".join(lines) or nothing)


def _builtin_names() -> Mapping[str, Collection[str]]:
    from specchat.cli.main import COMMANDS
    from specchat.profile.drafter_names import DRAFTERS
    from specchat.profile.keys import BUILTIN_BACKEND
    from specchat.tui.screen_commands import BUILTIN_COMMANDS

    return {
        "drafters": DRAFTERS,
        "servers": (BUILTIN_BACKEND,),
        "commands": COMMANDS,
        "slash_commands": BUILTIN_COMMANDS,
    }


def _lines(plugin: Plugin, builtin_names: Mapping[str, Collection[str]]) -> Iterator[str]:
    package = f" ({plugin.package} {plugin.version})" if plugin.package else ""
    yield f"{plugin.name}{package}" + ("" if plugin.extensions or plugin.error else ": adds nothing")
    if plugin.error:
        yield f"  left out: {plugin.error}"
    for kind, extensions in plugin.extensions.items():
        for extension in extensions:
            usage = USAGE_BY_KIND[kind].format(name=extension.name, arguments=extension.arguments).strip()
            fault = left_out(kind, extension, builtin_names.get(kind, ()))
            yield f"  {fault or f'{usage:<22} {extension.description}'}"
