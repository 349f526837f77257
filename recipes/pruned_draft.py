"""Why a head beats a pruned copy of the starter as its draft: acceptance, cost and expected speed of both, as a table.

    python -m recipes.pruned_draft --target FOLDER --answers FILE

The target is a prepared GGUF folder, and the file holds greedy answers of it (`recipes.starter_answers`), none of which
trained anything. A pruned draft has 1 to 4 layers of the target, its embeddings, its norm, and of its output matrix the
rows of the head's draft vocabulary. Layers are chosen on a tenth of the answers: the best one added to the best so far,
or to the first and last. The others measure how often the draft has the right token where all before it were right,
without any training. A draft pass costs its share of the weights of a target pass, which no kernel falls below; how
long the same layers take in the engine with the whole output matrix is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
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
from specchat.weights.gguf.gguf_conversion import safetensors_folder
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions

DEPTH, MAX_LAYERS, CHOOSING_SHARE = 4, 4, 0.1
TIMED_PASSES, TIMED_TEXT = 200, 128  # of which the fastest counts; tokens before them
HEAD = Path("specchat/starter_heads/eagle3")
# The head's card: at least 1 to 4 right tokens on held-out questions of its own at temperature 0, and docs/variants.md:
# four levels of drafting take 0.30 of a plain pass.
HEAD_SHARES, HEAD_COST = (0.734, 0.543, 0.409, 0.310), 0.075


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


def best_layers(model: PrunedLlama, answers: Sequence[Answer], vocabulary: Tensor) -> Iterator[tuple[int, ...]]:
    """The best layers found for 1, 2, ... layers."""
    every = range(model.shape.layers)
    found, ends = (), (0, model.shape.layers - 1)
    for count in range(1, MAX_LAYERS + 1):
        bases = {found, *([ends] if count > len(ends) else [])}
        sets = {tuple(sorted({*base, layer})) for base in bases for layer in every if layer not in base}
        sets |= {ends} if count == len(ends) else set()
        scores = {kept: at_least(right_tokens(model, kept, answers, vocabulary), 1)[0] for kept in sorted(sets)}
        found = max(scores, key=lambda kept: scores[kept])
        if count > len(ends):  # the best set with the first and the last layer is the next base with them
            ends_sets = [kept for kept in scores if set(ends) <= set(kept)]
            ends = max(ends_sets, key=lambda kept: scores[kept])
        yield found


def write_pruned(target: Path, kept: Sequence[int], folder: Path) -> None:
    """The target with these layers only, as a model folder."""
    source = safetensors_folder(target)
    tensors = dict[str, Tensor]()
    for name, tensor in load_file(source / "model.safetensors").items():
        prefix, _, rest = name.partition("layers.")
        if not rest:
            tensors[name] = tensor
        elif (layer := int(rest.partition(".")[0])) in kept:
            tensors[f"{prefix}layers.{list(kept).index(layer)}.{rest.partition('.')[2]}"] = tensor
    config = json.loads((source / "config.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": len(kept)}))
    save_file(tensors, folder / "model.safetensors")


def pass_seconds(model: Model, tokens: list[int], most_rows: int) -> list[float]:
    """The fastest of many passes over 1, 2, ... rows, in turn, so that other load slows all of them."""
    generation = Generation(model)
    generation.replace_tokens(list(tokens))
    fastest = [float("inf")] * most_rows
    with model.pool.acquire_slot(generation.cache, generation.rows_needed(most_rows)):
        for _progress in generation.prefill():
            pass
        for _ in range(TIMED_PASSES):
            for rows in range(most_rows):
                fastest[rows] = min(fastest[rows], generation.measure_pass(rows + 1, Sampler()))
    generation.close()
    return fastest


def best_chain(shares: Sequence[float], draft_cost: float, row_costs: Sequence[float]) -> tuple[int, float, float]:
    """The draft tokens of the fastest chain, its tokens per step, and its speed by that of plain decoding."""
    tokens = [1 + brought for brought in accumulate(shares)]
    speeds = [brought / (row_costs[size] + size * draft_cost) for size, brought in enumerate(tokens, start=1)]
    best = max(range(len(speeds)), key=lambda index: speeds[index])
    return best + 1, tokens[best], speeds[best]


def needed_acceptance(speed: float, draft_cost: float, row_costs: Sequence[float]) -> float | None:
    """The acceptance of each draft token with which a draft is as fast as this; None if all right were too few."""
    for percent in range(1, 101):
        shares = list(accumulate([percent / 100] * DEPTH, mul))
        if best_chain(shares, draft_cost, row_costs)[2] >= speed:
            return percent / 100
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    answers = [answer for answer in load_answers(arguments.answers) if answer.temperature == 0]
    choosing = answers[: round(CHOOSING_SHARE * len(answers))]
    measuring = answers[len(choosing) :]
    text = measuring[0].tokens[:TIMED_TEXT]
    offsets = load_file(HEAD / "model.safetensors")["d2t"].long()
    vocabulary = torch.arange(len(offsets)) + offsets
    packed = load_model(arguments.target, LoadOptions(device="cpu", quant_format="gguf"))
    seconds = pass_seconds(packed, text, DEPTH + 1)
    row_costs = [each / seconds[0] for each in accumulate(seconds, max)]  # more rows never cost less
    floats = pass_seconds(load_model(safetensors_folder(arguments.target), LoadOptions(device="cpu")), text, 1)[0]
    print(
        f"answer tokens: {sum(len(each.answered) for each in measuring)}; passes over 1 to {DEPTH + 1} rows: ", end=""
    )
    print(", ".join(f"{cost:.2f}" for cost in row_costs))
    model = PrunedLlama(arguments.target, CPU, torch.float32)
    layer = sum(w.numel() for name, w in model.weights.items() if ".layers.0." in name)
    layer += model.qkv[0].numel() + model.gate_up[0].numel()
    whole = layer * model.shape.layers + model.lm_head.numel()
    size, tokens, head_speed = best_chain(HEAD_SHARES, HEAD_COST, row_costs)
    print(
        "| draft | at least 1, 2, 3, 4 right | a draft token costs | measured | best chain | tokens | times plain | needed |"
    )
    print("|---|---|---|---|---|---|---|---|")
    right = ", ".join(f"{share:.3f}" for share in HEAD_SHARES)
    print(f"| the head | {right} | {HEAD_COST:.3f} | | {size} | {tokens:.2f} | {head_speed:.2f} | |")
    for kept in best_layers(model, choosing, vocabulary):
        shares = at_least(right_tokens(model, kept, measuring, vocabulary), DEPTH)
        cost = (layer * len(kept) + len(vocabulary) * model.shape.hidden_size) / whole
        with tempfile.TemporaryDirectory() as folder:
            write_pruned(arguments.target, kept, Path(folder))
            measured = pass_seconds(load_model(Path(folder), LoadOptions(device="cpu")), text, 1)[0] / floats
        size, tokens, speed = best_chain(shares, cost, row_costs)
        needed = needed_acceptance(head_speed, cost, row_costs)
        right = ", ".join(f"{share:.3f}" for share in shares)
        print(
            f"| layers {', '.join(map(str, kept))} | {right} | {cost:.3f} | {measured:.2f} | {size} | {tokens:.2f} "
            f"| {speed:.2f} | {'more than 1' if needed is None else f'{needed:.2f}'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
