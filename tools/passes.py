"""What a forward pass costs, by rows and context, and its share of the memory bandwidth.

python -m tools.passes --model-shape 0.5b --dtypes bfloat16 --contexts 128,4096 --rounds 5
python -m tools.passes --transformers --target FOLDER --dtypes bfloat16 --contexts 128,1024
"""

import sys
from typing import Any

import click

from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import UsageError
from tools.instrument import run_instrument
from tools.pass_costs import PassCosts, as_table, load_models, measure_pass_costs
from tools.random_models import RANDOM_WEIGHTS_WARNING, random_model_folder
from tools.transformers_passes import ComparedPasses, compare_with_transformers, comparison_table


@click.command("passes")
@click.option("--dtypes", default="", help="Dtypes to measure, separated by commas.")
@click.option("--kv-caches", default="", help="Formats of the KV cache to measure, separated by commas: float, int8.")
@click.option("--contexts", default="128,4096,16384", show_default=True, help="Tokens in the KV cache before a pass.")
@click.option("--rounds", default=9, show_default=True, help="Repetitions; all measurements take turns.")
@click.option("--threads", default=0, help="Threads of a pass; 0 leaves it to the engine.")
@click.option(
    "--model-shape",
    default="",
    help="Random weights instead: 0.5b, gemma-270m, gemma4-360m, moe-0.7b-a0.1b, 8b, or a config.json.",
)
@click.option("--transformers", "beside_transformers", is_flag=True, help="Only compare with transformers, in turn.")
@profile_options
def passes(
    dtypes: str, kv_caches: str, contexts: str, rounds: int, threads: int, model_shape: str, beside_transformers: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Measure forward passes of the target model.

    t(1) is the time of a pass over one row, c(M) the time over M rows relative to it. Beside them: the share of this
    machine's memory bandwidth, and the time of a plain step outside its pass. Medians of all rounds, with lowest and
    highest.
    """
    lengths = _parse_positive_integers(contexts, "--contexts")
    if rounds < 1:
        raise UsageError("--rounds must be at least 1")
    profile = resolve_profile(options)
    if model_shape:
        print_note(RANDOM_WEIGHTS_WARNING)
        profile = profile.override({"models.target": str(random_model_folder(model_shape)), "models.draft": ""})
    rows, compared = list[PassCosts](), list[ComparedPasses]()
    all_dtypes = dtypes.split(",") if dtypes else [profile.models.dtype]
    all_kv_caches = kv_caches.split(",") if kv_caches else [profile.models.kv_cache]
    for loaded in load_models(profile, all_dtypes, max(lengths), threads, all_kv_caches):
        for context in lengths:
            if not loaded.fits(context):
                window = f"a context window of {loaded.target.context_window}"
                print_note(f"{loaded.dtype}: {context} tokens and a few steps do not fit {window}")
                continue
            if beside_transformers:
                name = profile.models.target
                compared.append(compare_with_transformers(loaded, name, context, rounds, print_note))
            else:
                rows.append(measure_pass_costs(loaded, context, rounds, print_note))
    print(comparison_table(compared) if beside_transformers else as_table(rows))


def _parse_positive_integers(text: str, flag: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} {text!r}: give whole numbers, separated by commas") from None
    if min(numbers) < 1:
        raise UsageError(f"{flag} {text!r}: must be at least 1")
    return numbers


if __name__ == "__main__":
    sys.exit(run_instrument(passes))
