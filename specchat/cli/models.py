"""`specchat models`: lists, recommends, downloads and removes models and heads."""

import click

from specchat.cli.lazy_group import LazyGroup, commands_of


class ModelsGroup(LazyGroup):
    lazy_commands = commands_of("models")


@click.group(cls=ModelsGroup)
def models() -> None:
    """Choose and download models and heads."""
