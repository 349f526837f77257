"""What a pass of a mixture of experts costs: milliseconds and distinct experts, by its rows and by their tokens.

    python -m tools.expert_costs README.md --model-shape moe-0.7b-a0.1b --rounds 9

The rows of a pass are one token many times, consecutive tokens of a file, or random tokens. The weights are random: the
router of such a network chooses by the token alone, so only the same tokens share experts. A trained one also follows
the context. The passes take turns; times are CPU time of one thread.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, pstdev
from unittest.mock import patch

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.forward.llama.moe import ExpertSelection, Router
from specchat.hub.find_models import find_model
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_bench.chain_passes import random_context
from specchat_bench.columns import markdown_table
from tools.random_models import FIRST_NUMBER, random_model_folder

ROW_COUNTS = (1, 2, 4, 8, 16, 32)
CONTEXT = 128


@dataclass(frozen=True)
class MeasuredPass:
    seconds: float
    experts: float  # distinct ones of a layer, the mean of all layers


@contextmanager
def recorded_experts() -> Generator[list[int]]:
    """How many distinct experts each layer of the passes meanwhile chooses."""
    counts, choose = list[int](), Router.__call__

    def choose_and_count(router: Router, rows: Tensor) -> ExpertSelection:
        selection = choose(router, rows)
        counts.append(len(selection.experts.unique()))
        return selection

    with patch.object(Router, "__call__", choose_and_count):
        yield counts


def measure(model: Model, cache: KVCache, tokens: Sequence[int]) -> MeasuredPass:
    tree = DraftTree(tokens[0])
    tree.add_chain(list(tokens[1:]))
    with recorded_experts() as counts:
        started_at = time.process_time()
        model.forward(tree, cache)
        return MeasuredPass(time.process_time() - started_at, mean(counts))


def row_tokens(text: Sequence[int], vocab_size: int, count: int, rng: random.Random) -> dict[str, list[int]]:
    """The rows of a pass, of each kind."""
    start = rng.randrange(len(text) - count)
    return {
        "one token": [rng.randrange(FIRST_NUMBER, vocab_size)] * count,
        "text": list(text[start : start + count]),
        "random tokens": [rng.randrange(FIRST_NUMBER, vocab_size) for _ in range(count)],
    }


def measure_all(model: Model, text: Sequence[int], rounds: int) -> dict[tuple[str, int], list[MeasuredPass]]:
    """All passes by kind and rows; the first round warms up."""
    measured, rng = dict[tuple[str, int], list[MeasuredPass]](), random.Random(1)
    with random_context(model, CONTEXT) as generation:
        for number in range(rounds + 1):
            for count in ROW_COUNTS:
                for kind, tokens in row_tokens(text, model.vocab_size, count, rng).items():
                    one = measure(model, generation.cache, tokens)
                    if number:
                        measured.setdefault((kind, count), []).append(one)
    return measured


def table_rows(measured: dict[tuple[str, int], list[MeasuredPass]]) -> Iterator[list[str]]:
    for kind in dict.fromkeys(kind for kind, _count in measured):
        medians = {count: median(each.seconds for each in measured[kind, count]) for count in ROW_COUNTS}
        for count in ROW_COUNTS:
            experts = [each.experts for each in measured[kind, count]]
            milliseconds, relative_cost = 1000 * medians[count], medians[count] / medians[1]
            spread = f"{mean(experts):.1f} ± {pstdev(experts):.1f}"
            yield [kind, str(count), f"{milliseconds:.1f}", f"{relative_cost:.2f}", spread]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the text, in tokens of the embedded target")
    parser.add_argument("--model-shape", default="moe-0.7b-a0.1b")
    parser.add_argument("--weights", default="float")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options = LoadOptions("bfloat16", device="cpu", context_window=2048, quant_format=given.weights)
    model = load_model(random_model_folder(given.model_shape), options)
    encoded = Tokenizer(find_model("embedded")).encode(given.file.read_text(encoding="utf-8"))
    text = [token % model.vocab_size for token in encoded]
    header = ["rows are", "rows", "ms", "c", "experts of a layer"]
    print(markdown_table(header, table_rows(measure_all(model, text, given.rounds))))


if __name__ == "__main__":
    main()
