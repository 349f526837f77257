"""`specchat bench passes`: what a forward pass costs, by rows and context, and its share of the memory bandwidth."""

from pathlib import Path
from typing import Any

import click

from specchat.cli.bench import print_progress
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import UsageError


@click.command()
@click.option("--dtypes", default="", help="Dtypes to measure, separated by commas.")
@click.option("--contexts", default="128,4096,16384", show_default=True, help="Tokens in the KV cache before a pass.")
@click.option("--rounds", default=9, show_default=True, help="Repetitions; all measurements take turns.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to the engine.")
@click.option("--model-shape", default="", help="Random weights instead: 0.5b, 8b, or a config.json.")
@click.option("--acceptance", default="", help="Acceptance by depth, as 0.8,0.7: the speedup it would bring.")
@click.option("--limit", default=64, show_default=True, help="Tokens of an answer, for --acceptance.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every figure to this file, as JSON.")
@profile_options
def passes(
    dtypes: str, contexts: str, rounds: int, threads: int, model_shape: str, acceptance: str, limit: int,
    json_file: Path | None,    **options: Any,
) -> None:  # fmt: skip
    """Measure forward passes of the target model.

    t(1) is the time of a pass over one row, c(M) the time over M rows relative to it. Beside them: the share of this
    machine's memory bandwidth, and the time of a plain step outside its pass. Medians of all rounds, with lowest and
    highest. --acceptance drafts with known text and errs as often as the given rates say.
    """
    lengths, rates = _parse_positive_integers(contexts, "--contexts"), _parse_probabilities(acceptance)
    if rounds < 1 or limit < 1:
        raise UsageError("--rounds and --limit must be at least 1")
    profile = resolve_profile(options)
    from specchat.bench.oracle_drafter import OracleRow, measure_synthetic_acceptance
    from specchat.bench.oracle_drafter import as_table as as_gains
    from specchat.bench.pass_costs import PassCosts, as_json, as_table, load_models, measure_pass_costs
    from specchat.bench.random_models import RANDOM_WEIGHTS_WARNING, random_model_folder

    if model_shape:
        print_progress(RANDOM_WEIGHTS_WARNING)
        profile = profile.override({"models.target": str(random_model_folder(model_shape)), "models.draft": ""})
    rows, gains = list[PassCosts](), list[OracleRow]()
    for loaded in load_models(profile, dtypes.split(",") if dtypes else [profile.models.dtype], max(lengths), threads):
        for context in lengths:
            if not loaded.fits(context, limit):
                window = f"a context window of {loaded.target.context_window}"
                print_progress(f"{loaded.dtype}: {context} tokens and an answer do not fit {window}")
                continue
            rows.append(measure_pass_costs(loaded, context, rounds, print_progress))
            if rates:
                gains += measure_synthetic_acceptance(loaded, context, rates, limit, rounds, print_progress)
    tables = [as_table(rows)] + [as_gains(gains)] * bool(gains)
    print("\n\n".join(tables))
    if json_file is not None:
        json_file.write_text(as_json([*rows, *gains]), encoding="utf-8")


def _parse_positive_integers(text: str, flag: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} {text!r}: give whole numbers, separated by commas") from None
    if min(numbers) < 1:
        raise UsageError(f"{flag} {text!r}: must be at least 1")
    return numbers


def _parse_probabilities(text: str) -> list[float]:
    try:
        rates = [float(word) for word in text.split(",")] if text else []
    except ValueError:
        raise UsageError(f"--acceptance {text!r}: give rates, separated by commas, as 0.8,0.7") from None
    if not all(0 <= rate <= 1 for rate in rates):
        raise UsageError(f"--acceptance {text!r}: rates lie between 0 and 1")
    return rates
