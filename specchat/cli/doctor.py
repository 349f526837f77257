"""`specchat doctor`: does everything work here? Exit code 11 when something is broken."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from specchat.bench.health_checks import FAIL, OK, WARN, CheckContext, Finding, run_checks
from specchat.cli.completion import complete_profiles
from specchat.cli.notes import print_note

BROKEN_EXIT_CODE = 11
GPU_REPORT = "specchat-gpu.json"
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@click.command()
@click.option(
    "--profile",
    "-P",
    "profile",
    default="chat",
    show_default=True,
    help="The profile to check.",
    shell_complete=complete_profiles,
)
@click.option("--quick", "is_quick", is_flag=True, help="Measure nothing and do not import torch.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object.")
@click.option("--gpu", "is_gpu", is_flag=True, help="Try and time everything on the GPU: 5 minutes, without a model.")
@click.option("--sections", "names", default="", help="With --gpu: only these parts, separated by commas.")
@click.option(
    "--report", "report_path", type=click.Path(path_type=Path, dir_okay=False), default=GPU_REPORT, show_default=True,
    help="With --gpu: the file of the JSON object.",
)  # fmt: skip
@click.option("--limit", default=300.0, show_default=True, help="With --gpu: seconds; the rest is left out.")
def doctor(
    profile: str, names: str, report_path: Path, limit: float, *, is_quick: bool, is_json: bool, is_gpu: bool
) -> int:
    """Check versions, devices, folders, models, plugins and the engine process; each line is ok, warn or fail.

    Exit code 0 without failures, 11 with one. Uses no network.
    """
    if is_gpu:
        return _try_gpu(names, report_path, limit, is_json=is_json)
    if not is_quick:
        print_note("measuring the bandwidth of main memory (a second at most) and trying torch")
    findings: list[Finding] = []
    for finding in run_checks(CheckContext(profile, is_quick)):
        findings.append(finding)
        if not is_json:
            status = click.style(f"{finding.status:<4}", fg=COLOURS[finding.status])
            click.echo(f"{status}  {finding.check:<22} {finding.message}")
    code = BROKEN_EXIT_CODE if any(finding.status == FAIL for finding in findings) else 0
    count = Counter(finding.status for finding in findings)
    if is_json:
        report = {"exit_code": code, "count": count, "findings": [asdict(each) for each in findings]}
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(f"\n{count[OK]} ok, {count[WARN]} warnings, {count[FAIL]} broken")
    return code


def _try_gpu(names: str, report_path: Path, limit: float, *, is_json: bool) -> int:
    """Measure the GPU; the file is complete after each section, so that it tells all before a crash."""
    from specchat.bench.gpu.report import SectionResult, as_json, as_text, run_sections
    from specchat.bench.gpu.sections import gpu_sections

    results = list[SectionResult]()
    for result in run_sections(gpu_sections(filter(None, names.split(","))), print_note, limit):
        results.append(result)
        report_path.write_text(as_json(results), encoding="utf-8")
        if not is_json:
            print(as_text(result), flush=True)
    if is_json:
        print(as_json(results))
    print_note(f"written to {report_path.resolve()}: please send this file back")
    return BROKEN_EXIT_CODE if any(result.has_errors for result in results) else 0
