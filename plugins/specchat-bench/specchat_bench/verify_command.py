"""`specchat verify`: checks that drafting does not change the text, with this model on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.completion import complete_models, complete_sessions
from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import SpecchatError, UsageError
from specchat.profile.drafter_names import DRAFTERS
from specchat_bench.command_options import ALL, PROMPTS, complete_drafters, parse_names
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.work_progress import WorkProgress

if TYPE_CHECKING:
    from specchat_bench.lossless_check import Difference, VerifyReport

MAX_LISTED_DIFFERENCES = 5  # of one variant


class NotLosslessError(SpecchatError):
    """Speculative decoding changed the text on this machine."""

    exit_code = 10


@click.command()
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--session",
    "session_id",
    default="",
    help="Replay this conversation: its id or the beginning of it.",
    shell_complete=complete_sessions,
)
@click.option("--prompts", "prompts_path", type=PROMPTS, help="A file of JSON lines, or a folder of such files.")
@click.option(
    "--variants",
    "names",
    default=ALL,
    show_default=True,
    help="Drafters, separated by commas.",
    shell_complete=complete_drafters,
)
@click.option("--count", default=6, show_default=True, help="Number of prompts.")
@click.option("--limit", default=64, show_default=True, help="Most tokens of an answer.")
@click.option("--draws", default=1000, show_default=True, help="Samples for each acceptance test; 0 skips them.")
@click.option("--json", "is_json", is_flag=True, help="The whole report as one JSON object.")
@profile_options
def verify(
    model: str | None,
    session_id: str,
    prompts_path: Path | None,
    names: str,
    count: int,
    limit: int,
    draws: int,
    *,
    is_json: bool,
    **options: Any,
) -> int:
    """Decode prompts with and without drafts, and compare the texts.

    MODEL is a target as for --target. Ctrl-C ends it with what was compared so far. Exit code 0: decoding is lossless
    here; 10: it is not, and the report shows the differences.
    """
    if session_id and prompts_path:
        raise UsageError("--session and --prompts both say what is decoded; name one of them")
    options["target"] = model or options["target"]
    profile = resolve_profile(options)
    variants = parse_names("variant", names, [name for name in DRAFTERS if name != "plain"])
    from specchat_bench.lossless_check import VerifySettings, empty_report, verify_lossless
    from specchat_bench.tokenized_prompts import fitting_prompts, requests_of, stored_prompts

    engine, progress = load_engine_here(profile), WorkProgress()
    prompts = (
        list(stored_prompts(session_id, engine))
        if session_id
        else fitting_prompts(engine, requests_of(prompts_path), count, limit)
    )
    report = empty_report(engine)
    try:
        verify_lossless(engine, VerifySettings(prompts[:count], variants, limit, draws), progress.show, report)
    except KeyboardInterrupt:
        report.is_complete = False
    print(json.dumps(asdict(report) | {"lossless": report.is_lossless}) if is_json else as_text(report))
    if not report.is_lossless:
        raise NotLosslessError("decoding is not lossless here: drafting changed the text; please report this")
    return 0 if report.is_complete else INTERRUPTED_EXIT_CODE


def as_text(report: VerifyReport) -> str:
    exact = ", exact" if report.exact else ""
    lines = [f"{report.model} in {report.dtype}{exact}", "", f"{'variant':<12}{'T':>5}  identical"]
    for result in report.results:
        identical = result.skip_reason or f"{result.identical_answers} of {result.answers}"
        ties = f", {len(result.near_ties)} decided a near tie the other way" if result.near_ties else ""
        lines.append(f"{result.variant:<12}{result.temperature:>5g}  {identical}{ties}")
        lines += [f"{'':19}{_difference_text(difference)}" for difference in result.mismatches[:MAX_LISTED_DIFFERENCES]]
    share = f"{report.near_tie_tokens} of {report.sampled_tokens} sampled tokens of plain decoding were near ties"
    lines += ["", share]
    for fit in report.distribution_tests:
        outcome = "do not fit" if fit.is_failure else "fit"
        samples = f"{fit.token_position}: {fit.draws} samples {outcome}"
        lines.append(f"{samples} the probabilities of a plain pass (p = {fit.p_value:.2g})")
    last_line = "decoding is lossless here" if report.is_lossless else "decoding is not lossless here"
    if not report.is_complete:
        last_line = f"stopped before the end; {last_line}, as far as it was compared"
    return "\n".join([*lines, "", last_line])


def _difference_text(difference: Difference) -> str:
    return (
        f"token {difference.position + 1}: {difference.drafted_token} instead of {difference.plain_token}, "
        f"which had a higher logit in plain decoding, by {difference.logit_margin:.3g}"
    )
