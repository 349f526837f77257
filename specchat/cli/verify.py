"""`specchat verify`: is the text the same, on this machine, with this model?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from specchat.chat.history import HistoryReader
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.print_turn import ERASE_LINE
from specchat.errors import InputError, NotLosslessError, UsageError
from specchat.host.spawn import history_path
from specchat.profile import DRAFTERS

if TYPE_CHECKING:
    from specchat.assemble import Engine
    from specchat.bench.lossless_check import Difference, VerifyReport

MAX_LISTED_DIFFERENCES = 5  # differences of a variant


@click.command()
@click.argument("model", required=False)
@click.option("--session", "thread", default="", help="Replay this conversation; its id, or how it begins.")
@click.option("--variants", "names", default="all", show_default=True, help="Who guesses, with commas between them.")
@click.option("--count", default=6, show_default=True, help="How many prompts.")
@click.option("--limit", default=64, show_default=True, help="Most tokens of an answer.")
@click.option("--draws", default=1000, show_default=True, help="Throws of the dice for each rule; 0 leaves them out.")
@click.option("--json", "is_json", is_flag=True, help="The whole report as one JSON object.")
@profile_options
def verify(
    model: str | None, thread: str, names: str, count: int, limit: int, draws: int, *, is_json: bool, **options: Any
) -> None:
    """Replay prompts plainly and with guesses, and say whether the text is the same.

    MODEL is a target as for --target. Exit code 0: the engine may be trusted here; 10: it may not, and the report says
    where it went wrong.
    """
    options["target"] = model or options["target"]
    profile = resolve_profile(options)
    variants = _parse_variants(names)
    from specchat.assemble import load_engine
    from specchat.bench.lossless_check import VerifySettings, verify_lossless

    engine = load_engine(profile)
    prompts = list(_stored_prompts(thread, engine)) if thread else _builtin_prompts(engine, count, limit)
    report = verify_lossless(engine, VerifySettings(prompts[:count], variants, limit, draws), _progress)
    _progress("")
    print(json.dumps(asdict(report) | {"trusted": report.is_lossless}) if is_json else as_text(report))
    if not report.is_lossless:
        raise NotLosslessError("the engine may not be trusted here: guesses changed the text; please report this")


def _parse_variants(names: str) -> list[str]:
    known = [name for name in DRAFTERS if name != "plain"]
    chosen = known if names == "all" else names.split(",")
    for name in chosen:
        if name not in known:
            raise UsageError(f"unknown variant {name!r}; known are {', '.join(known)}")
    return chosen


def _builtin_prompts(engine: Engine, count: int, limit: int) -> list[list[int]]:
    """Prompts of our own, one of each kind in turn."""
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.report import tokenize_prompts

    by_turns = zip(*(requests[:3] for requests in BUILTIN_REQUESTS.values()), strict=True)
    return list(tokenize_prompts(engine, chain.from_iterable(by_turns), count, limit))


def _stored_prompts(thread: str, engine: Engine) -> Iterator[list[int]]:
    """What the model was told before each answer of a conversation that is kept."""
    path = history_path()
    reader = HistoryReader(path) if path.is_file() else None
    found = reader.thread(thread) if reader else None
    if reader is None or found is None:
        raise InputError(f"{thread}: no such conversation, or several begin so; 'specchat stats' counts what is kept")
    try:
        turns = [list(turn.answer.prompt_ids) for turn in reader.turns(found.tip) if turn.answer.prompt_ids]
    finally:
        reader.close()
    target = engine.models.target
    fitting = [ids for ids in turns if max(ids) < target.vocab_size and len(ids) < target.context_window]
    if not fitting:
        raise InputError(f"{thread}: none of its {len(turns)} turns can be replayed by this model; name its own")
    yield from fitting


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{ERASE_LINE}{what}")
        sys.stderr.flush()


def as_text(report: VerifyReport) -> str:
    """The report as people read it."""
    exact = ", exact" if report.exact else ""
    lines = [f"{report.model} in {report.dtype}{exact}", "", f"{'variant':<12}{'T':>5}  same text"]
    for verdict in report.results:
        told = verdict.skip_reason or f"{verdict.identical_answers} of {verdict.answers}"
        lines.append(f"{verdict.variant:<12}{verdict.temperature:>5g}  {told}{_tie_note(len(verdict.near_ties))}")
        lines += [
            f"{'':19}{_difference_text(difference)}" for difference in verdict.mismatches[:MAX_LISTED_DIFFERENCES]
        ]
    share = f"{report.near_tie_tokens} of {report.sampled_tokens} picks of plain decoding lay within rounding of another token"
    lines += ["", share]
    for fit in report.distribution_tests:
        told = "do not fit" if fit.is_failure else "fit"
        lines.append(
            f"{fit.rule}, {fit.token_position}: {fit.draws} draws {told} the chances of a plain pass (p = {fit.p_value:.2g})"
        )
    return "\n".join([*lines, "", "the engine may be trusted here" if report.is_lossless else "not to be trusted"])


def _tie_note(ties: int) -> str:
    return f", {ties} broke a near tie otherwise" if ties else ""


def _difference_text(difference: Difference) -> str:
    return (
        f"token {difference.position + 1}: {difference.drafted_token} instead of {difference.plain_token}, "
        f"which plain decoding liked better by {difference.logit_margin:.3g}"
    )
