"""`specchat models`: which models and heads there are, what fits this machine, and what lies in a folder."""

from __future__ import annotations

from collections.abc import Mapping

import click

from specchat.cli.lazy_group import LazyCommand, LazyGroup


class ModelsGroup(LazyGroup):
    """What can be asked of models before they are used."""

    lazy_commands: Mapping[str, LazyCommand] = {
        "list": LazyCommand("specchat.cli.models_list:listing", "What the catalog knows, and what lies on this disk."),
        "recommend": LazyCommand(
            "specchat.cli.models_recommend:recommend_command", "The best pair for the memory that is free."
        ),
        "pull": LazyCommand("specchat.cli.pull:pull", "Download a model, or go on with half of one."),
        "inspect": LazyCommand("specchat.cli.models_inspect:inspect", "What a head is, and whether it fits a target."),
        "remove": LazyCommand("specchat.cli.remove:remove", "Delete a model from the hub's cache."),
    }


@click.group(cls=ModelsGroup)
def models() -> None:
    """Choose models and heads, and look at them before they are used."""
