"""Our engine beside transformers and llama.cpp on random weights of a shape; the prompts are edits of counted numbers.

python -m tools.random_peers 0.5b --dtype bfloat16 --count 3 --limit 60 --threads 1
"""

import sys
from typing import Any

import click

from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat_bench.compared_engines import PeerBench, as_table
from specchat_bench.llama_cpp import MISSING_MESSAGE, find_library_folder
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.measure import set_thread_count
from tools.instrument import run_instrument
from tools.random_models import RANDOM_WEIGHTS_WARNING, counting_edit_prompts, random_model_folder


@click.command("random_peers")
@click.argument("shape")
@click.option("--count", default=20, show_default=True, help="Number of prompts.")
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option("--threads", default=0, help="Threads of a pass, ours and theirs; 0 leaves it to torch.")
@click.option(
    "--replace-interval",
    type=click.IntRange(min=2),
    default=20,
    show_default=True,
    help="Numbers between two that an edit replaces.",
)
@click.option("--filter", "name_filter", default="", help="Only comparisons whose name contains this, as 'generate'.")
@profile_options
def peers(
    shape: str, count: int, limit: int, threads: int, replace_interval: int, name_filter: str, **options: Any
) -> None:
    """SHAPE is 0.5b, gemma-270m, gemma4-360m, moe-0.7b-a0.1b, 8b, or a config.json."""
    print_note(RANDOM_WEIGHTS_WARNING)
    models = {"models.target": str(random_model_folder(shape)), "models.draft": "", "models.heads": ()}
    engine = load_engine_here(resolve_profile(options).override(models))
    set_thread_count(threads)
    prompts = tuple(counting_edit_prompts(count, limit, replace_interval, engine.models.target.vocab_size))
    if find_library_folder() is None:
        print_note(MISSING_MESSAGE)
    print(as_table(PeerBench(engine, prompts, limit, name_filter).rows(print_note)))


if __name__ == "__main__":
    sys.exit(run_instrument(peers))
