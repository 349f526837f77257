"""`specchat bench peers`: our engine against transformers and llama.cpp on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specchat.cli.bench import PROMPTS, print_progress
from specchat.cli.loaded_engine import load_engine_here
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import InputError, UsageError


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option("--count", default=20, show_default=True, help="Number of prompts.")
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option(
    "--prompt-tokens", default=0, help="Cut or repeat each prompt to this length; compare reading with --limit 1."
)
@click.option("--threads", default=0, help="Threads of a pass, ours and theirs; 0 leaves it to torch.")
@click.option(
    "--model-shape",
    default="",
    help="Random weights, edits of numbers: 0.5b, gemma-270m, gemma4-360m, moe-0.7b-a0.1b, 8b, or a config.json.",
)
@click.option("--replace-interval", default=20, show_default=True, help="Numbers between two that an edit replaces.")
@click.option("--filter", "name_filter", default="", help="Only comparisons whose name contains this, as 'generate'.")
@profile_options
def peers(
    prompts: Path | None, count: int, limit: int, prompt_tokens: int, threads: int, model_shape: str,
    replace_interval: int, name_filter: str, **options: Any,
) -> None:  # fmt: skip
    """Measure against transformers and llama.cpp on the same weights, side by side.

    PROMPTS is a file of JSON lines with `turns`, or with `instruction` and `before`, or a folder of such files. Each
    prompt runs ours, theirs, theirs, ours; the table shows ratios of seconds per token, prefill included; with
    --prompt-tokens and --limit 1 they are those of reading. llama.cpp takes part where its library is installed;
    SPECCHAT_LLAMA names its folder. It reads the target's GGUF file, or one that is written from our weights where
    there is none.
    """
    if (prompts is None) == (not model_shape):
        raise UsageError("give a file or folder of prompts, or --model-shape")
    if prompt_tokens < 0 or (prompt_tokens and model_shape):
        raise UsageError("--prompt-tokens is a length, 1 or more, of the prompts of a file")
    if replace_interval < 2:
        raise UsageError("--replace-interval must be at least 2")
    from specchat.bench.llama_cpp import MISSING_MESSAGE, find_library_folder
    from specchat.bench.measure import set_thread_count
    from specchat.bench.peers import PeerBench, as_table, cut_or_repeat, tokenize_prompts
    from specchat.bench.prompt_files import read_prompts
    from specchat.bench.random_models import RANDOM_WEIGHTS_WARNING, counting_edit_prompts, random_model_folder

    profile = resolve_profile(options)
    if model_shape:
        print_progress(RANDOM_WEIGHTS_WARNING)
        folder = str(random_model_folder(model_shape))
        profile = profile.override({"models.target": folder, "models.draft": "", "models.heads": ()})
    engine = load_engine_here(profile)
    set_thread_count(threads)
    requests = ()
    if prompts is not None:
        tokenized = tokenize_prompts(engine, read_prompts(prompts), count, limit)
        chosen, requests = tuple(each.token_ids for each in tokenized), tuple(each.request for each in tokenized)
        if prompt_tokens:
            fits = prompt_tokens + limit <= engine.models.target.context_window
            chosen, requests = tuple(cut_or_repeat(each, prompt_tokens) for each in chosen if fits), ()
    else:
        chosen = tuple(counting_edit_prompts(count, limit, replace_interval, engine.models.target.vocab_size))
    if not chosen:
        raise InputError(f"{prompts}: no prompt there leaves room for {limit} tokens in the context window")
    print_progress(f"{len(chosen)} prompts, answers of at most {limit} tokens")
    if find_library_folder() is None:
        print_progress(MISSING_MESSAGE)
    source_of_prompt = (lambda prompt: prompt[:-1]) if model_shape else None  # the file that an edit rewrites
    rows = []
    for row in PeerBench(engine, chosen, limit, name_filter, source_of_prompt, requests).rows():
        print_progress(f"{row.name}: {row.median_speedup:.2f}")
        rows.append(row)
    print(as_table(rows))
