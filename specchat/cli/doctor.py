"""`specchat doctor`: is everything in order here, and what would be chosen? Exit code 11 when something is broken."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict

import click

from specchat.cli.doctor_checks import FAIL, OK, WARN, CheckContext, Finding, run_checks

BROKEN_EXIT_CODE = 11
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@click.command()
@click.option("--profile", "-P", "profile", default="chat", show_default=True, help="The profile to look at.")
@click.option("--quick", "is_quick", is_flag=True, help="Measure nothing, and do not start torch.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object.")
def doctor(profile: str, *, is_quick: bool, is_json: bool) -> int:
    """Look at versions, devices, folders, models, plugins and the engine process; each line is ok, warn or fail.

    Leaves with 0 when all is well or could only be better, with 11 when something does not work. Asks no network.
    """
    if not is_quick:
        print("measuring the bandwidth of main memory (a second at most) and trying torch", file=sys.stderr)
    seen: list[Finding] = []
    for finding in run_checks(CheckContext(profile, is_quick)):
        seen.append(finding)
        if not is_json:
            click.echo(_finding_line(finding))
    code = BROKEN_EXIT_CODE if any(finding.status == FAIL for finding in seen) else 0
    count = Counter(finding.status for finding in seen)
    if is_json:
        click.echo(
            json.dumps({"exit_code": code, "count": count, "findings": [asdict(each) for each in seen]}, indent=1)
        )
    else:
        click.echo(f"\n{count[OK]} ok, {count[WARN]} to look at, {count[FAIL]} broken")
    return code


def _finding_line(finding: Finding) -> str:
    return f"{click.style(f'{finding.status:<4}', fg=COLOURS[finding.status])}  {finding.check:<22} {finding.message}"
