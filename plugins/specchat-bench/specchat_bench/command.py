"""`specchat bench`: the commands that measure, each imported only when it runs."""

from collections.abc import Mapping

import click

from specchat.cli.lazy_group import LazyCommand, LazyGroup


class BenchGroup(LazyGroup):
    lazy_commands: Mapping[str, LazyCommand] = {
        "drafters": LazyCommand("specchat_bench.drafters_command:drafters", "Every drafter beside plain decoding."),
        "peers": LazyCommand("specchat_bench.peers_command:peers", "Against transformers and llama.cpp."),
        "inspect": LazyCommand(
            "specchat_bench.inspect_command:inspect", "What a head or draft is, and whether it fits a target."
        ),
        "gpu": LazyCommand("specchat_bench.gpu.command:gpu", "Everything on the GPU; also `specchat doctor --gpu`."),
    }


@click.group(cls=BenchGroup)
def bench() -> None:
    """Measure the drafters, other engines, or a GPU, side by side in one run."""
