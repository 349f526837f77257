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
from specchat.cli.options import chosen_profile, profile_options
from specchat.cli.print_turn import ERASE_LINE
from specchat.errors import DistrustError, InputError, UsageError
from specchat.host.spawn import history_path
from specchat.profile import GUESSERS

if TYPE_CHECKING:
    from specchat.assemble import Engine
    from specchat.bench.lossless_check import Difference, Report

LISTED = 5  # differences of a variant


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
    profile = chosen_profile(options)
    variants = _variants(names)
    from specchat.assemble import load_engine
    from specchat.bench.lossless_check import Trial, examine

    engine = load_engine(profile)
    prompts = list(_stored(thread, engine)) if thread else _own(engine, count, limit)
    report = examine(engine, Trial(prompts[:count], variants, limit, draws), _progress)
    _progress("")
    print(json.dumps(asdict(report) | {"trusted": report.is_trusted}) if is_json else as_text(report))
    if not report.is_trusted:
        raise DistrustError("the engine may not be trusted here: guesses changed the text; please report this")


def _variants(names: str) -> list[str]:
    known = [name for name in GUESSERS if name != "plain"]
    chosen = known if names == "all" else names.split(",")
    for name in chosen:
        if name not in known:
            raise UsageError(f"unknown variant {name!r}; known are {', '.join(known)}")
    return chosen


def _own(engine: Engine, count: int, limit: int) -> list[list[int]]:
    """Prompts of our own, one of each kind in turn."""
    from specchat.bench.builtin_prompts import QUESTIONS
    from specchat.bench.report import tokens_of

    by_turns = zip(*(requests[:3] for requests in QUESTIONS.values()), strict=True)
    return list(tokens_of(engine, chain.from_iterable(by_turns), count, limit))


def _stored(thread: str, engine: Engine) -> Iterator[list[int]]:
    """What the model was told before each answer of a conversation that is kept."""
    path = history_path()
    reader = HistoryReader(path) if path.is_file() else None
    found = reader.thread(thread) if reader else None
    if reader is None or found is None:
        raise InputError(f"{thread}: no such conversation, or several begin so; 'specchat stats' counts what is kept")
    try:
        turns = [list(turn.answered.prompt_ids) for turn in reader.turns(found.tip) if turn.answered.prompt_ids]
    finally:
        reader.close()
    target = engine.voice.target
    fitting = [ids for ids in turns if max(ids) < target.vocabulary and len(ids) < target.window]
    if not fitting:
        raise InputError(f"{thread}: none of its {len(turns)} turns can be replayed by this model; name its own")
    yield from fitting


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{ERASE_LINE}{what}")
        sys.stderr.flush()


def as_text(report: Report) -> str:
    """The report as people read it."""
    exact = ", exact" if report.exact else ""
    lines = [f"{report.model} in {report.dtype}{exact}", "", f"{'variant':<12}{'T':>5}  same text"]
    for verdict in report.verdicts:
        told = verdict.refused or f"{verdict.same} of {verdict.answers}"
        lines.append(f"{verdict.variant:<12}{verdict.temperature:>5g}  {told}{_counted(len(verdict.ties))}")
        lines += [f"{'':19}{_told(difference)}" for difference in verdict.faults[:LISTED]]
    share = f"{report.near} of {report.picks} picks of plain decoding lay within rounding of another token"
    lines += ["", share]
    for fit in report.fits:
        told = "do not fit" if fit.is_fault else "fit"
        lines.append(
            f"{fit.rule}, {fit.place}: {fit.draws} draws {told} the chances of a plain pass (p = {fit.chance:.2g})"
        )
    return "\n".join([*lines, "", "the engine may be trusted here" if report.is_trusted else "not to be trusted"])


def _counted(ties: int) -> str:
    return f", {ties} broke a near tie otherwise" if ties else ""


def _told(difference: Difference) -> str:
    return (
        f"token {difference.place + 1}: {difference.guessed} instead of {difference.plain}, "
        f"which plain decoding liked better by {difference.margin:.3g}"
    )
