"""A group of commands that are imported when they are called, so that `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

import click


@dataclass(frozen=True)
class Later:
    """A command that is not imported yet: where it is ("package.module:attribute"), and what the list says of it."""

    where: str
    help: str

    def load(self) -> click.Command:
        """Import it."""
        module, _, attribute = self.where.partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))


class LazyGroup(click.Group):
    """Knows its commands by name and one line each."""

    later: Mapping[str, Later] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were given."""
        return list(self.later)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself: this is where it is imported."""
        later = self.later.get(cmd_name)
        return later.load() if later else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, later.help) for name, later in self.later.items()])
