"""A group of commands that are imported when they are called, so that `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

import click


class UnloadedCommand(Protocol):
    """A command that is not imported yet."""

    @property
    def help(self) -> str:
        """What the list says of it."""
        ...

    def load(self) -> click.Command:
        """Import it."""
        ...


@dataclass(frozen=True)
class LazyCommand:
    """A command of ours: where it is ("package.module:attribute"), and what the list says of it."""

    import_path: str
    help: str

    def load(self) -> click.Command:
        """Import it."""
        module, _, attribute = self.import_path.partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))


class LazyGroup(click.Group):
    """Knows its commands by name and one line each."""

    lazy_commands: Mapping[str, LazyCommand] = {}

    def plugin_commands(self) -> Mapping[str, UnloadedCommand]:
        """More of them, asked for only for a list, and for a name that is not in `later`."""
        return {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were given."""
        return [*self.lazy_commands, *self.plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself: this is where it is imported."""
        found = self.lazy_commands.get(cmd_name) or self.plugin_commands().get(cmd_name)
        return found.load() if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.help) for name, each in {**self.lazy_commands, **self.plugin_commands()}.items()]
            )
