"""A command that a plugin adds, before it is imported."""

from __future__ import annotations

from dataclasses import dataclass

import click

from specchat.plugins.offer import Offer


@dataclass(frozen=True)
class Added:
    """What stands in the list of commands for it."""

    offer: Offer

    @property
    def help(self) -> str:
        """What the list says of it."""
        return self.offer.what

    def load(self) -> click.Command:
        """Import it; PluginError when it is none."""
        command = self.offer.load()
        if not isinstance(command, click.Command):
            raise self.offer.failure(f"is a {type(command).__name__}, which is no click.Command")
        return command
