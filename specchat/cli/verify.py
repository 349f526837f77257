"""`specchat verify`: checks that drafting does not change the text, with this model on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specchat.cli.bench import PROMPTS, parse_names
from specchat.cli.completion import complete_drafters, complete_models, complete_sessions
from specchat.cli.loaded_engine import load_engine_here
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import NotLosslessError, UsageError
from specchat.profile import DRAFTERS
from specchat.repl.answer_printer import TemporaryLine

if TYPE_CHECKING:
    from specchat.bench.loop_check import LoopReport
    from specchat.bench.lossless_check import VerifyReport

Report = TypeVar("Report", "VerifyReport", "LoopReport")


@click.command()
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--session",
    "session_id",
    default="",
    help="Replay this conversation: its id or the beginning of it.",
    shell_complete=complete_sessions,
)
@click.option("--prompts", "prompts_path", type=PROMPTS, help="Prompts as JSON lines, as for 'specchat bench'.")
@click.option(
    "--variants",
    "names",
    default="all",
    show_default=True,
    help="Drafters, separated by commas.",
    shell_complete=complete_drafters,
)
@click.option("--count", default=6, show_default=True, help="Number of prompts, or of loops.")
@click.option("--limit", default=64, show_default=True, help="Most tokens of an answer.")
@click.option("--draws", default=1000, show_default=True, help="Samples for each acceptance test; 0 skips them.")
@click.option(
    "--loops", "is_loops", is_flag=True, help="Compare tool calls in agent loops instead of answers to prompts."
)
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
    is_loops: bool,
    is_json: bool,
    **options: Any,
) -> None:
    """Decode prompts with and without drafts, and compare the texts.

    MODEL is a target as for --target. Exit code 0: decoding is lossless here; 10: it is not, and the report shows
    the differences.
    """
    if session_id and prompts_path:
        raise UsageError("--session and --prompts both say what is decoded; name one of them")
    if is_loops and (session_id or prompts_path):
        raise UsageError("--loops has conversations of its own; leave out --session and --prompts")
    options["target"] = model or options["target"]
    profile = resolve_profile(options)
    variants = parse_names("variant", names, [name for name in DRAFTERS if name != "plain"])
    from specchat.bench.lossless_check import VerifySettings, verify_lossless
    from specchat.bench.verify_prompts import requests_of, stored_prompts, tokenized_prompts
    from specchat.bench.verify_report import as_text, loops_as_text

    engine, progress_line = load_engine_here(profile), TemporaryLine()
    if is_loops:
        from specchat.bench.loop_check import verify_loops

        loops = verify_loops(engine, variants, count, progress_line.show)
        progress_line.erase()
        _print_report(loops, loops_as_text, "a tool call or a text of a loop", is_json=is_json)
        return
    prompts = (
        list(stored_prompts(session_id, engine))
        if session_id
        else tokenized_prompts(requests_of(prompts_path), engine, count, limit)
    )
    report = verify_lossless(engine, VerifySettings(prompts[:count], variants, limit, draws), progress_line.show)
    progress_line.erase()
    _print_report(report, as_text, "the text", is_json=is_json)


def _print_report(report: Report, to_text: Callable[[Report], str], compared: str, *, is_json: bool) -> None:
    """Print it; NotLosslessError when drafting changed what was compared."""
    print(json.dumps(asdict(report) | {"lossless": report.is_lossless}) if is_json else to_text(report))
    if not report.is_lossless:
        raise NotLosslessError(f"decoding is not lossless here: drafting changed {compared}; please report this")
