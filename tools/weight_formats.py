"""What a pass of a model costs on a CPU with each format of its weights, by the number of its rows.

    python -m tools.weight_formats --target starter --weights float,gguf,int8 --rows 1,2,4,8,16,32 --rounds 9

Every round measures all formats in turn. The figures are CPU time, the minimum of all rounds, which other load on the
machine changes less than it changes the time on the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import process_time

import torch

from specchat.engine.cache import KVCache
from specchat.engine.model import Model
from specchat.profile.profile_files import load_profile
from specchat_bench.chain_passes import random_context
from specchat_bench.columns import markdown_table
from tools.pass_costs import load_models, pass_seconds


def cpu_seconds(model: Model, cache: KVCache, rows: int) -> float:
    started_at = process_time()
    pass_seconds(model, cache, rows)
    return process_time() - started_at


def measure(models: Sequence[Model], rows: Sequence[int], context: int, rounds: int) -> list[list[float]]:
    """The least CPU seconds for each model and each number of rows."""
    with ExitStack() as stack:
        caches = [stack.enter_context(random_context(each, context)).cache for each in models]
        timed = [
            [[cpu_seconds(model, cache, count) for count in rows] for model, cache in zip(models, caches, strict=True)]
            for _ in range(rounds)
        ]
    return [[min(times) for times in zip(*of_model, strict=True)] for of_model in zip(*timed, strict=True)]


def lines(formats: Sequence[str], seconds: Sequence[Sequence[float]]) -> Iterator[list[str]]:
    """A line for each format: milliseconds of the first number of rows, and the others relative to it."""
    for name, (first, *others) in zip(formats, seconds, strict=True):
        yield [name, f"{first * 1000:.1f}", *(f"{each / first:.2f}" for each in others)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="starter")
    parser.add_argument("--weights", default="float,gguf,int8", help="formats, separated by commas")
    parser.add_argument("--rows", default="1,2,4,8,16,32", help="rows of a pass, separated by commas")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    formats, rows = arguments.weights.split(","), [int(each) for each in arguments.rows.split(",")]
    torch.manual_seed(0)
    models = list[Model]()
    for each in formats:
        profile = load_profile("chat").override({"models.target": arguments.target, "models.weights": each})
        [loaded] = load_models(profile, ["bfloat16"], arguments.context, arguments.threads)
        models.append(loaded.target)
    header = ["weights", f"t({rows[0]}) ms", *(f"c({count})" for count in rows[1:])]
    print(markdown_table(header, lines(formats, measure(models, rows, arguments.context, arguments.rounds))))


if __name__ == "__main__":
    main()
