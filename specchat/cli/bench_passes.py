"""`specchat bench passes`: what a pass costs, by rows and by context, and how near to the memory's bandwidth it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import UsageError


@click.command()
@click.option("--dtypes", default="", help="Which numbers to compute with, one after the other, commas between them.")
@click.option("--contexts", default="128,4096,16384", show_default=True, help="Tokens of text before the passes.")
@click.option("--rounds", default=9, show_default=True, help="How often everything is measured, in turns.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to the engine.")
@click.option("--shape", default="", help="Random weights instead: 0.5b, 8b, or a config.json. Meaningless as text.")
@click.option("--acceptance", default="", help="Chances of the first, second ... guess, as 0.8,0.7: what they bring.")
@click.option("--limit", default=64, show_default=True, help="Tokens of an answer, for --acceptance.")
@click.option("--json", "raw", type=click.Path(path_type=Path), help="Write every figure to this file, as JSON.")
@profile_options
def passes(
    dtypes: str, contexts: str, rounds: int, threads: int, shape: str, acceptance: str, limit: int, raw: Path | None,
    **options: Any,
) -> None:  # fmt: skip
    """Measure passes of the model that writes.

    t(1) is a pass over one row, c(M) one over M rows by it; then the share of the bandwidth of this machine's memory,
    measured beside it, and what a plain step of the engine costs besides its pass. Middles of all rounds, with the
    lowest and the highest. For --acceptance a drafter that knows the text errs as often as is said.
    """
    lengths, chances = _parse_positive_integers(contexts, "--contexts"), _parse_probabilities(acceptance)
    if rounds < 1 or limit < 1:
        raise UsageError("--rounds and --limit must be at least 1")
    profile = resolve_profile(options)
    from specchat.bench.oracle_drafter import OracleRow, measure_synthetic_acceptance
    from specchat.bench.oracle_drafter import as_table as as_gains
    from specchat.bench.pass_costs import PassCosts, as_json, as_table, load_models, measure_pass_costs
    from specchat.bench.random_models import RANDOM_WEIGHTS_WARNING, random_model_folder

    def progress(said: str) -> None:
        print(said, file=sys.stderr, flush=True)

    if shape:
        progress(RANDOM_WEIGHTS_WARNING)
        profile = profile.override({"models.target": str(random_model_folder(shape)), "models.draft": ""})
    rows, won = list[PassCosts](), list[OracleRow]()
    for subject in load_models(profile, dtypes.split(",") if dtypes else [profile.models.dtype], max(lengths), threads):
        for context in lengths:
            if not subject.fits(context, limit):
                progress(
                    f"{subject.dtype}: {context} tokens and an answer do not fit a window of {subject.target.context_window}"
                )
                continue
            rows.append(measure_pass_costs(subject, context, rounds, progress))
            won += measure_synthetic_acceptance(subject, context, chances, limit, rounds, progress) if chances else []
    tables = [as_table(rows)] + [as_gains(won)] * bool(won)
    print("\n\n".join(tables))
    if raw is not None:
        raw.write_text(as_json([*rows, *won]), encoding="utf-8")


def _parse_positive_integers(text: str, flag: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} {text!r}: whole numbers with commas between them, please") from None
    if min(numbers) < 1:
        raise UsageError(f"{flag} {text!r}: must be at least 1")
    return numbers


def _parse_probabilities(text: str) -> list[float]:
    try:
        chances = [float(word) for word in text.split(",")] if text else []
    except ValueError:
        raise UsageError(f"--acceptance {text!r}: chances with commas between them, please, as 0.8,0.7") from None
    if not all(0 <= chance <= 1 for chance in chances):
        raise UsageError(f"--acceptance {text!r}: chances are between 0 and 1")
    return chances
