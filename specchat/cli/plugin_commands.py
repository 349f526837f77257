"""A command of a plugin, before it is imported."""

from __future__ import annotations

from dataclasses import dataclass

import click

from specchat.plugins.extension import Extension


@dataclass(frozen=True)
class PluginCommand:
    extension: Extension

    @property
    def help(self) -> str:
        return self.extension.description

    def load(self) -> click.Command:
        """Import it. PluginError when it is no command."""
        command = self.extension.load()
        if not isinstance(command, click.Command):
            raise self.extension.plugin_error(f"is a {type(command).__name__}, which is no click.Command")
        return command
