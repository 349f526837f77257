"""A group of commands that are imported when they are called, so that `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

import click


class Unloaded(Protocol):
    """A command that is not imported yet."""

    @property
    def help(self) -> str:
        """What the list says of it."""
        ...

    def load(self) -> click.Command:
        """Import it."""
        ...


@dataclass(frozen=True)
class Later:
    """A command of ours: where it is ("package.module:attribute"), and what the list says of it."""

    where: str
    help: str

    def load(self) -> click.Command:
        """Import it."""
        module, _, attribute = self.where.partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))


class LazyGroup(click.Group):
    """Knows its commands by name and one line each."""

    later: Mapping[str, Later] = {}

    def added(self) -> Mapping[str, Unloaded]:
        """More of them, asked for only for a list, and for a name that is not in `later`."""
        return {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were given."""
        return [*self.later, *self.added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself: this is where it is imported."""
        found = self.later.get(cmd_name) or self.added().get(cmd_name)
        return found.load() if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.help) for name, each in {**self.later, **self.added()}.items()])
