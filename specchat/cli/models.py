"""`specchat models`: lists, recommends, downloads and removes models and heads."""

from collections.abc import Mapping

import click

from specchat.cli.lazy_group import LazyCommand, LazyGroup


class ModelsGroup(LazyGroup):
    lazy_commands: Mapping[str, LazyCommand] = {
        "list": LazyCommand(
            "specchat.cli.models_list:list_models", "The models of the catalog, and those on this disk."
        ),
        "recommend": LazyCommand(
            "specchat.cli.models_recommend:recommend_command", "The best pair for the free memory."
        ),
        "pull": LazyCommand("specchat.cli.pull:pull", "Download a model, or resume a download."),
        "remove": LazyCommand("specchat.cli.pull:remove", "Delete a model from the hub cache."),
    }


@click.group(cls=ModelsGroup)
def models() -> None:
    """Choose and download models and heads."""
