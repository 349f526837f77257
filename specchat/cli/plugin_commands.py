"""A command that a plugin adds, before it is imported."""

from __future__ import annotations

from dataclasses import dataclass

import click

from specchat.plugins.extension import Extension


@dataclass(frozen=True)
class PluginCommand:
    """What stands in the list of commands for it."""

    offer: Extension

    @property
    def help(self) -> str:
        """What the list says of it."""
        return self.offer.description

    def load(self) -> click.Command:
        """Import it; PluginError when it is none."""
        command = self.offer.load()
        if not isinstance(command, click.Command):
            raise self.offer.plugin_error(f"is a {type(command).__name__}, which is no click.Command")
        return command
