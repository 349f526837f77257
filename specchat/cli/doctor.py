"""`specchat doctor`: does everything work here? Exit code 11 when something is broken."""

import json
from collections import Counter
from dataclasses import asdict

import click

from specchat.checks.health_checks import FAIL, OK, WARN, CheckContext, Finding, run_checks
from specchat.cli.completion import complete_profiles
from specchat.cli.notes import print_note, print_rows
from specchat.plugins.discovery import find_extensions
from specchat.plugins.own_plugins import missing_plugin

BROKEN_EXIT_CODE = 11
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@click.command()
@click.option(
    "--profile", "-P", metavar="NAME", default="chat", show_default=True, help="The profile to check.",
    shell_complete=complete_profiles,
)  # fmt: skip
@click.option("--quick", "is_quick", is_flag=True, help="Measure nothing and do not import torch.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object.")
@click.option("--gpu", "is_gpu", is_flag=True, help="Try and time everything on the GPU (a plugin: `bench gpu`).")
@click.pass_context
def doctor(context: click.Context, profile: str, *, is_quick: bool, is_json: bool, is_gpu: bool) -> int:
    """Check versions, devices, folders, models, plugins and the engine process; each line is ok, warn or fail.

    Exit code 0 without failures, 11 with one. Uses no network.
    """
    if is_gpu:
        return context.invoke(_gpu_command(context), is_json=is_json)
    if not is_quick:
        print_note("trying torch, bitsandbytes and native ops; the memory bandwidth is measured, too")
    findings: list[Finding] = []
    for finding in run_checks(CheckContext(profile, is_quick, print_note)):
        findings.append(finding)
        if not is_json:
            status = click.style(f"{finding.status:<4}", fg=COLOURS[finding.status])
            print_rows(f"{status}  {finding.check:<22} {finding.message}")
    code = BROKEN_EXIT_CODE if any(finding.status == FAIL for finding in findings) else 0
    count = Counter(finding.status for finding in findings)
    if is_json:
        report = {"exit_code": code, "count": count, "findings": [asdict(each) for each in findings]}
        click.echo(json.dumps(report, indent=1))
    else:
        print_rows(f"\n{count[OK]} ok, {count[WARN]} warnings, {count[FAIL]} broken")
    return code


def _gpu_command(context: click.Context) -> click.Command:
    """`specchat bench gpu`, which a plugin of ours brings."""
    extension = find_extensions("commands").get("bench")
    group = extension.load() if extension else None
    command = group.get_command(context, "gpu") if isinstance(group, click.Group) else None
    if command is None:
        raise missing_plugin("'specchat doctor --gpu'", "bench")
    return command
