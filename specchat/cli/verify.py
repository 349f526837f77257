"""`specchat verify`: checks that drafting does not change the text, with this model on this machine."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from specchat.checks.loaded_engine import load_engine_here
from specchat.cli.completion import complete_drafters, complete_models, complete_sessions
from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.work_progress import WorkProgress
from specchat.errors import InputError, NotLosslessError, UsageError
from specchat.profile import DRAFTERS
from specchat.profile.validation import did_you_mean

ALL = "all"


class PromptsPath(click.Path):
    """A path that must exist; it is read only after the models are loaded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. InputError when it does not exist."""
        path = Path(value)
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        return path


PROMPTS = PromptsPath()


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
    from specchat.checks.lossless_check import VerifySettings, empty_report, verify_lossless
    from specchat.checks.tokenized_prompts import fitting_prompts, requests_of, stored_prompts
    from specchat.checks.verify_report import as_text

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
    progress.erase()
    print(json.dumps(asdict(report) | {"lossless": report.is_lossless}) if is_json else as_text(report))
    if not report.is_lossless:
        raise NotLosslessError("decoding is not lossless here: drafting changed the text; please report this")
    return 0 if report.is_complete else INTERRUPTED_EXIT_CODE


def parse_names(what: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """Known names separated by commas, or `all`. UsageError for an unknown one."""
    names = tuple(known) if text == ALL else tuple(word.strip() for word in text.split(","))
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r};{did_you_mean(name, known)} known are {', '.join(known)}")
    return names
