"""Why a head beats a pruned copy of the starter as its draft: acceptance, cost and expected speed of both, as a table.

    python -m recipes.pruned_draft --target FOLDER --answers FILE

The target is a prepared GGUF folder, and the file holds greedy answers of it (`recipes.starter_answers`), none of which
trained anything. A pruned draft has some layers of the target, its embeddings, its norm, and of its output matrix the
rows of the head's draft vocabulary. The first answers choose the layers: the best one is added to the best so far, and
two are compared with the first and last one, too. Others measure how often the draft has the right token where all
before it were right, without any training. A draft pass costs its share of the weights of a target pass, which no
kernel falls below; what the same layers take in the engine with the whole output matrix is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from operator import mul
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from recipes.answer_files import Answer, load_answers
from recipes.batched_llama import CPU, BatchedLlama
from specchat.engine.decode import Generation
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids.gguf_conversion import safetensors_folder
from tools.replay_chooser import CostTable, read_cost_tables

DEPTH, MAX_LAYERS = 4, 4
CHOOSING_ANSWERS, MEASURED_ANSWERS = 4, 24
TIMED_PASSES, TIMED_TEXT = 100, 128  # of which the fastest counts; tokens before them
HEAD = Path("specchat/starter_heads/eagle3")
HEAD_SHARES = (0.734, 0.543, 0.409, 0.310)  # its card: at least 1 to 4 right tokens, its own questions, temperature 0
COSTS = Path("tests/chooser/traces/costs-cpu.json")  # of passes by rows and of the head, of a calm core


class PrunedLlama(BatchedLlama):
    """The target, of which some layers are computed."""

    kept: Sequence[int] | None = None

    @property
    def _layers(self) -> Sequence[int]:
        return super()._layers if self.kept is None else self.kept


def at_least(is_right: Sequence[Tensor], depth: int) -> list[float]:
    """The share of positions from which at least 1, 2, ... `depth` tokens in a row are right. bool [answer] each"""
    shares = list[float]()
    for length in range(1, depth + 1):
        rows = [each.unfold(0, length, 1).all(-1) for each in is_right if len(each) >= length]
        shares.append(torch.cat(rows).float().mean().item())
    return shares


@torch.no_grad()
def right_tokens(
    model: PrunedLlama, kept: Sequence[int], answers: Sequence[Answer], vocabulary: Tensor
) -> list[Tensor]:
    """For each token of an answer, whether it is the draft's most probable one of the vocabulary. bool [answer] each"""
    model.kept, lm_head = kept, model.lm_head[vocabulary]
    rows = list[Tensor]()
    for answer in answers:
        final = model.read_texts(torch.tensor([answer.tokens]))[0, answer.start - 1 : -1, -model.shape.hidden_size :]
        rows.append(vocabulary[F.linear(final, lm_head).argmax(-1)] == torch.tensor(answer.answered))
    return rows


def best_layers(
    model: PrunedLlama, layers: int, answers: Sequence[Answer], vocabulary: Tensor
) -> Iterator[tuple[int, ...]]:
    """The best layers found for 1, 2, ... layers."""
    best: tuple[int, ...] = ()
    for count in range(1, MAX_LAYERS + 1):
        candidates = [tuple(sorted((*best, layer))) for layer in range(layers) if layer not in best]
        candidates += [(0, layers - 1)] if count == 2 else []
        scores = [at_least(right_tokens(model, kept, answers, vocabulary), 1)[0] for kept in candidates]
        best = candidates[scores.index(max(scores))]
        yield best


def write_pruned(target: Path, kept: Sequence[int], folder: Path) -> None:
    """The target with these layers only, as a model folder."""
    source = safetensors_folder(target)
    tensors = dict[str, Tensor]()
    for name, tensor in load_file(source / "model.safetensors").items():
        prefix, _, rest = name.partition("layers.")
        layer, _, part = rest.partition(".")
        if not rest:
            tensors[name] = tensor
        elif int(layer) in kept:
            tensors[f"{prefix}layers.{list(kept).index(int(layer))}.{part}"] = tensor
    config = json.loads((source / "config.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": len(kept)}))
    save_file(tensors, folder / "model.safetensors")


def pass_seconds(models: Sequence[Model], tokens: list[int]) -> list[float]:
    """The fastest of many plain passes of each model, in turn, so that other load slows all of them."""
    generations, fastest = [Generation(model) for model in models], [float("inf")] * len(models)
    with ExitStack() as slots:
        for generation in generations:
            generation.replace_tokens(list(tokens))
            slots.enter_context(generation.target.pool.acquire_slot(generation.cache, generation.rows_needed(1)))
            for _progress in generation.prefill():
                pass
        for _ in range(TIMED_PASSES):
            for index, generation in enumerate(generations):
                fastest[index] = min(fastest[index], generation.measure_pass(1, Sampler()))
    for generation in generations:
        generation.close()
    return fastest


def best_chain(shares: Sequence[float], cost: tuple[float, float], rows: Sequence[float]) -> tuple[int, float, float]:
    """The draft tokens of the fastest chain, its tokens per step, and its speed by that of plain decoding.

    All costs are of a plain pass: of a draft, of each of its tokens, and of a pass over 0, 1, 2, ... rows.
    """
    tokens, (once, each) = [1 + brought for brought in accumulate(shares)], cost
    speeds = [brought / (rows[size + 1] + once + size * each) for size, brought in enumerate(tokens, start=1)]
    best = speeds.index(max(speeds))
    return best + 1, tokens[best], speeds[best]


def needed_acceptance(speed: float, cost: tuple[float, float], rows: Sequence[float]) -> str:
    """How often each draft token must be right for this speed."""
    for percent in range(1, 101):
        if best_chain(list(accumulate([percent / 100] * DEPTH, mul)), cost, rows)[2] >= speed:
            return f"{percent / 100:.2f}"
    return "more than 1"


def weights_share(model: PrunedLlama, kept: int, draft_tokens: int) -> float:
    """The weights of a draft pass over so many layers, by those of a target pass."""
    layer = sum(weight.numel() for name, weight in model.weights.items() if ".layers.0." in name)
    layer += model.qkv[0].numel() + model.gate_up[0].numel()
    output = model.shape.hidden_size
    return (kept * layer + draft_tokens * output) / (len(model.qkv) * layer + model.lm_head.shape[0] * output)


def print_table(target: Path, answers: Sequence[Answer], table: CostTable) -> None:
    choosing, measuring = answers[:CHOOSING_ANSWERS], answers[CHOOSING_ANSWERS:][:MEASURED_ANSWERS]
    plain = table.pass_seconds_by_rows[1]
    rows = [seconds / plain for seconds in table.pass_seconds()[: DEPTH + 2]]
    offsets = load_file(HEAD / "model.safetensors")["d2t"].long()
    vocabulary = torch.arange(len(offsets)) + offsets
    model = PrunedLlama(target, CPU, torch.float32)
    once, each = (seconds / plain for seconds in table.draft_costs["eagle3"])
    size, tokens, head_speed = best_chain(HEAD_SHARES, (once, each), rows)
    print(f"{sum(len(answer.answered) for answer in measuring)} answer tokens; ", end="")
    print("passes over 1, 2, ... rows: " + ", ".join(f"{cost:.2f}" for cost in rows[1:]))
    print(
        "| draft | at least 1, 2, 3, 4 right | cost of a draft token | measured | chain | tokens | times plain | needed |"
    )
    print("|---|---|---|---|---|---|---|---|")
    right = ", ".join(f"{share:.3f}" for share in HEAD_SHARES)
    print(f"| the head | {right} | {each:.3f}, and {once:.3f} once | | {size} | {tokens:.2f} | {head_speed:.2f} | |")
    for kept in best_layers(model, len(model.qkv), choosing, vocabulary):
        shares = at_least(right_tokens(model, kept, measuring, vocabulary), DEPTH)
        with tempfile.TemporaryDirectory() as folder:
            write_pruned(target, kept, Path(folder))
            folders = (safetensors_folder(target), Path(folder))
            models = [load_model(each_folder, LoadOptions(device="cpu")) for each_folder in folders]
            whole, pruned = pass_seconds(models, measuring[0].tokens[:TIMED_TEXT])
        cost = (0.0, weights_share(model, len(kept), len(vocabulary)))
        size, tokens, speed = best_chain(shares, cost, rows)
        right = ", ".join(f"{share:.3f}" for share in shares)
        print(
            f"| layers {', '.join(map(str, kept))} | {right} | {cost[1]:.3f} | {pruned / whole:.2f} | {size} "
            f"| {tokens:.2f} | {speed:.2f} | {needed_acceptance(head_speed, cost, rows)} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    answers = [answer for answer in load_answers(arguments.answers) if answer.temperature == 0]
    print_table(arguments.target, answers, read_cost_tables(COSTS)[0])


if __name__ == "__main__":
    main()
