"""`specchat models recommend`: the best pairs for this machine, and a profile that uses the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from specchat.cli.notes import print_note, print_rows, print_wrapped
from specchat.hub.machine import (
    Device,
    Machine,
    detect_machine,
    is_busy,
    keep_bandwidth,
    kept_bandwidth,
    memory_bandwidth,
    simulated_gpu,
)
from specchat.hub.pair_text import describe_device, describe_pair, profile_text, pull_command
from specchat.hub.recommend import DEFAULT_CONTEXT_TOKENS, recommend
from specchat.profile.profile_files import save_profile

if TYPE_CHECKING:
    from specchat.hub.recommend import ModelPair

LABELS = ("best", "or", "or")
MAX_GPU_GB = 10_000
NOTHING_FITS_MESSAGE = "no model of the catalog fits here; 'specchat demo' and the embedded models run in 1 GiB"


class TokenCount(click.ParamType):
    """A number of tokens: 8192, or 8k."""

    name = "tokens"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse; a k stands for 1024 tokens."""
        if isinstance(value, int):
            return value
        digits, times = (value[:-1], 1024) if value[-1:] in ("k", "K") else (value, 1)
        if not digits.isdigit() or not 0 < int(digits) * times <= 2**24:
            self.fail(f"{value!r} is no number of tokens; give one such as 8192 or 32k", param, ctx)
        return int(digits) * times


class Gigabytes(click.ParamType):
    name = "gb"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            size = float(value)
        except ValueError:
            size = 0.0
        if not 0.5 <= size <= MAX_GPU_GB:
            self.fail(f"{value!r} is no GPU memory; give GB, such as 24", param, ctx)
        return size


@click.command("recommend")
@click.option("--memory", type=Gigabytes(), help="For a GPU with this many GB that also drives a screen.")
@click.option(
    "--ctx", "context", type=TokenCount(), default=DEFAULT_CONTEXT_TOKENS, show_default=True, help="Context, in tokens."
)
@click.option("--measure", "measures_again", is_flag=True, help="Measure the bandwidth again, on a quiet machine.")
@click.option("--save", metavar="NAME", help="Write the profile of the best pair under this name.")
@click.option("--force", "is_forced", is_flag=True, help="Replace a profile of that name.")
def recommend_command(
    memory: float | None, context: int, save: str | None, *, measures_again: bool, is_forced: bool
) -> None:
    """Choose a target and its drafter by the memory of this machine; weights and KV cache are both counted.

    Downloads nothing. Without a GPU, main memory and its bandwidth decide, which is measured once and kept.
    """
    device, machine = measure_device(memory, measures_again=measures_again)
    pairs = recommend(device, machine, context)
    print_pairs(device, list(zip(LABELS, pairs, strict=False)))
    if not pairs:
        return
    click.echo(f"\ndownload:  {pull_command(pairs[0])}\nprofile:   specchat models recommend --save NAME")
    if save:
        path = save_profile(save, profile_text(pairs[0], save), overwrites=is_forced)
        print_note(f"written to {path}; use it with --profile {save}")


def measure_device(memory: float | None, *, measures_again: bool = False) -> tuple[Device, Machine | None]:
    """The best device of this machine, or a GPU with this many GB."""
    if memory:
        return simulated_gpu(memory), None
    machine = measure_machine(measures_again=measures_again)
    return machine.best_device, machine


def measure_machine(*, measures_again: bool = False) -> Machine:
    """Detect this machine; without a GPU the memory bandwidth is measured once, after a line that says so."""
    machine = detect_machine()
    if machine.best_device.is_gpu:
        return machine
    kept = None if measures_again else kept_bandwidth()
    if kept is None:
        is_lasting = not is_busy()
        busy = "" if is_lasting else "; other programs compute now, so it is measured again next time"
        print_wrapped(f"no GPU found; measuring the bandwidth of main memory (a second at most){busy}")
        kept = keep_bandwidth(memory_bandwidth(), is_lasting=is_lasting)
    return replace(machine, bytes_per_second=kept)


def print_pairs(device: Device, labelled: Sequence[tuple[str, ModelPair]], *, err: bool = False) -> None:
    """The device, and each pair after its label; or that none fits."""
    about = describe_device(device, labelled[0][1].bandwidth if labelled else None)
    print_rows(about if labelled else f"{about}: {NOTHING_FITS_MESSAGE}", 5, err=err)
    for label, pair in labelled:
        for number, line in enumerate(describe_pair(pair)):
            print_rows(f"{'' if number else label:<5}{line}", 5, err=err)
