"""What long contexts cost on a CPU: passes over a KV cache of floats and of 8 bits, by its length.

    python -m tools.long_context --model-shape 0.5b --dtype bfloat16 --contexts 512,1024,8192,16384 --rounds 9

t(1) is a pass over one row, c(5) one over five rows by t(1): it verifies a chain of four draft tokens.

Both formats share the weights, and every round measures all of them in turn. The figures are CPU time, which other load
on the machine changes less than it changes the time on the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from time import process_time

import torch

from specchat.engine.cache import KVCache
from specchat.forward.llama.llama import LlamaModel
from specchat.profile.profile_files import load_profile
from specchat_bench.chain_passes import MedianRange, random_context
from specchat_bench.columns import markdown_table
from tools.pass_costs import load_models, pass_seconds
from tools.random_models import random_model_folder


def with_int8_kv(model: LlamaModel) -> LlamaModel:
    """The same weights, with a KV cache in 8 bits."""
    return LlamaModel(model.dimensions, model.weights, model.context_window, model.limits, has_int8_kv=True)


@dataclass(frozen=True)
class PassTimes:
    """CPU seconds of passes in one round."""

    one_row: float
    five_rows: float

    @classmethod
    def measure(cls, model: LlamaModel, cache: KVCache) -> PassTimes:
        return cls(*(_cpu_seconds(lambda rows=rows: pass_seconds(model, cache, rows)) for rows in (1, 5)))


def _cpu_seconds(run_pass: Callable[[], object]) -> float:
    started_at = process_time()
    run_pass()
    return process_time() - started_at


def measure(model: LlamaModel, contexts: Sequence[int], rounds: int) -> Iterator[list[str]]:
    """A row of the table for each context."""
    models = (model, with_int8_kv(model))
    for context in contexts:
        with ExitStack() as stack:
            caches = [stack.enter_context(random_context(each, context)).cache for each in models]
            timed = [
                [PassTimes.measure(each, cache) for each, cache in zip(models, caches, strict=True)]
                for _ in range(rounds + 1)
            ][1:]  # the first round warms up
        sizes = [f"{context * each.pool.layout.bytes_per_row / 2**20:.1f}" for each in models]
        by_format = list(zip(*timed, strict=True))
        seconds = [MedianRange.from_values(each.one_row for each in times).to_text(1, 1000) for times in by_format]
        ratio = MedianRange.from_values(small.one_row / large.one_row for large, small in timed).to_text(2)
        wide = [f"{median(each.five_rows / each.one_row for each in times):.2f}" for times in by_format]
        yield [str(context), *sizes, *seconds, ratio, *wide]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-shape", default="0.5b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--weights", default="float")
    parser.add_argument("--contexts", default="512,1024,8192,16384")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    contexts = [int(each) for each in arguments.contexts.split(",")]
    profile = load_profile("chat").override(
        {"models.target": str(random_model_folder(arguments.model_shape)), "models.weights": arguments.weights}
    )
    torch.manual_seed(0)
    [loaded] = load_models(profile, [arguments.dtype], max(contexts), arguments.threads)
    assert isinstance(loaded.target, LlamaModel)
    header = [
        "context", "MiB, float", "MiB, int8", "t(1) ms, float", "t(1) ms, int8", "int8 / float",
        "c(5), float", "c(5), int8",
    ]  # fmt: skip
    print(markdown_table(header, measure(loaded.target, contexts, arguments.rounds)))


if __name__ == "__main__":
    main()
