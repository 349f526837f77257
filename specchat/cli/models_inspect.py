"""`specchat models inspect`: what head or model a folder holds, without loading it."""

import click

from specchat.cli.completion import complete_models
from specchat.errors import UsageError


@click.command()
@click.argument("head", shell_complete=complete_models)
@click.option("--target", help="The target: embedded, a folder, or a hub id.", shell_complete=complete_models)
@click.option("--test", is_flag=True, help="Load both, and measure how often the head agrees with the target.")
def inspect(head: str, target: str | None, test: bool) -> None:
    """Show what a head is, how it was detected, and whether it fits a target; or whether a model fits as its draft.

    HEAD is a folder, a file, a hub id, embedded/eagle3 or embedded/mtp.
    """
    if test and not target:
        raise UsageError("--test compares a head with a target: add --target")
    from specchat.checks.head_report import report_lines

    last_label = ""
    for label, line in report_lines(head, target, is_tested=test):
        print(f"  {'' if label == last_label else label:<9} {line}" if label else line)
        last_label = label
