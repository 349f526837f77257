"""What networks with recurrent layers cost: a pass by its rows, and going back in a text.

Needs the plugin: pip install ./plugins/specchat-hybrids

    python -m tools.recurrent_costs passes --shape qwen3_5 --rounds 7
    python -m tools.recurrent_costs going-back

Passes: random weights of a shape, in our own passes where they compute the family, stepped row by row in those of
transformers, and computed in chunks by transformers, in turn. A step verifies a chain of which only the first row is
accepted, so it includes what a rejection costs; a prompt has CONTEXT tokens. Times are CPU time.

Going back: tiny random networks; the text is edited near its end, and the answer is compared with that to a fresh text.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.batch import BatchLimits
from specchat.weights.llama_weights import is_llama_like, load_llama
from specchat_hybrids.chains import OwnCacheChains
from tools.zoo_networks import tiny_network

VOCABULARY = 32768
GENERAL = {"vocab_size": VOCABULARY, "tie_word_embeddings": True, "max_position_embeddings": 4096}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_5": ("qwen3_5_text", GENERAL | {
        "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    }),
    "lfm2": ("lfm2", GENERAL | {
        "hidden_size": 1024, "intermediate_size": 4608, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 8, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    }),
    "granite_hybrid": ("granitemoehybrid", GENERAL | {
        "hidden_size": 768, "intermediate_size": 2048, "shared_intermediate_size": 2048, "num_hidden_layers": 32,
        "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 0, "mamba_n_heads": 48,
        "mamba_d_head": 32, "mamba_d_state": 128,
        "layer_types": [*["mamba"] * 10, "attention", *["mamba"] * 10, "attention", *["mamba"] * 10],
    }),
}  # fmt: skip
ROW_COUNTS = (1, 2, 4, 8, 16)
PASSES = 3  # that are timed together
CONTEXT = 128
TEXT_TOKENS, EDITED_AT, ANSWER_TOKENS = 990, 975, 16
FAMILIES = (
    "qwen3_5_text",
    "qwen3_next",
    "kimi_linear",
    "lfm2",
    "granitemoehybrid",
    "falcon_h1",
    "nemotron_h",
    "mamba2",
)


def random_network(shape: str, dtype: torch.dtype) -> PreTrainedModel:
    family, sizes = SHAPES[shape]
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**sizes), dtype=dtype).eval()


def own_passes(network: PreTrainedModel) -> Model:
    with TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        return load_llama(Path(folder), network.dtype, network.device, None, BatchLimits())


def prompt_seconds(generation: Generation, prompt: list[int]) -> float:
    """The CPU time of a prompt that replaces the text."""
    generation.replace_tokens([0])
    generation.replace_tokens(prompt)
    started_at = time.process_time()
    with generation.target.pool.acquire_slot(generation.cache, 2 * CONTEXT):
        list(generation.prefill())
    return time.process_time() - started_at


def step_seconds(generation: Generation, rows: int) -> float:
    """The CPU time of a step over so many rows whose drafts are all rejected, after one like it."""
    model, cache, tree = generation.target, generation.cache, DraftTree(5)
    tree.add_chain([5] * (rows - 1))
    with model.pool.acquire_slot(cache, 2 * CONTEXT):
        model.forward(tree, cache)
        cache.commit([0])
        started_at = time.process_time()
        for _ in range(PASSES):
            model.forward(tree, cache)
            cache.commit([0])
        return (time.process_time() - started_at) / PASSES


def pass_rows(shape: str, dtype: torch.dtype, rounds: int) -> Iterator[str]:
    """A table: milliseconds of a step over one row, and the other steps relative to it."""
    network = random_network(shape, dtype)
    models: dict[str, Model] = {
        "chunks and replay": OwnCacheChains(network, steps_rows=False),
        "stepped": OwnCacheChains(network),
    }
    if is_llama_like(network.config.to_dict()):
        models["own passes"] = own_passes(network)
    generations = {name: Generation(model) for name, model in models.items()}
    prompt = [5 + index % 1000 for index in range(CONTEXT)]
    seconds: dict[tuple[str, int], float] = {}
    for _round in range(rounds):
        for name, generation in generations.items():
            value = prompt_seconds(generation, prompt)
            seconds[name, 0] = min(value, seconds.get((name, 0), value))
        for rows in ROW_COUNTS:
            for name, generation in generations.items():
                value = step_seconds(generation, rows)
                seconds[name, rows] = min(value, seconds.get((name, rows), value))
    parameters = sum(each.numel() for each in network.parameters()) / 1e6
    yield f"{shape}, {parameters:.0f}M parameters, {dtype}, {torch.get_num_threads()} threads, {rounds} rounds\n"
    columns = " | ".join(f"c({rows})" for rows in ROW_COUNTS[1:])
    yield f"| recurrent layers | 1 row (ms) | {columns} | prompt (ms) |"
    yield "|---" * (2 + len(ROW_COUNTS)) + "|"
    for name in models:
        single = seconds[name, 1]
        costs = (f"{seconds[name, rows] / single:.2f}" for rows in ROW_COUNTS[1:])
        yield f"| {name} | {1000 * single:.1f} | {' | '.join(costs)} | {1000 * seconds[name, 0]:.0f} |"


def answer(model: Model, generation: Generation) -> list[int]:
    with model.pool.acquire_slot(generation.cache, TEXT_TOKENS + ANSWER_TOKENS):
        list(generation.prefill())
        list(generation.decode(GenerationConfig(Drafter(), Sampler(), 0, ANSWER_TOKENS)))
    return generation.tokens


def going_back_row(family: str) -> str:
    network = tiny_network(family)
    model = OwnCacheChains(network)
    draw = random.Random(1)
    text = [draw.randrange(1, model.vocab_size) for _ in range(TEXT_TOKENS)]
    generation, fresh = Generation(model), Generation(model)
    generation.replace_tokens(text)
    answer(model, generation)
    edited = [*text[:EDITED_AT], 1 + text[EDITED_AT] % (model.vocab_size - 1), *text[EDITED_AT + 1 :]]
    kept = generation.replace_tokens(edited)
    fresh.replace_tokens(edited)
    is_same = answer(model, generation) == answer(model, fresh)
    return f"| {family} | {kept} of {TEXT_TOKENS} | {TEXT_TOKENS - 1 - kept} | {'yes' if is_same else 'no'} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    passes = commands.add_parser("passes")
    passes.add_argument("--shape", choices=SHAPES, default="qwen3_5")
    passes.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    passes.add_argument("--rounds", type=int, default=7)
    passes.add_argument("--threads", type=int, default=1)
    going_back = commands.add_parser("going-back")
    going_back.add_argument("families", nargs="*", default=FAMILIES)
    given = parser.parse_args(arguments)
    if given.command == "passes":
        torch.set_num_threads(given.threads)
        for line in pass_rows(given.shape, getattr(torch, given.dtype), given.rounds):
            print(line, flush=True)
        return
    print(f"| family | kept after token {EDITED_AT} changes | read again | same text as fresh |\n|---|---|---|---|")
    for family in given.families:
        print(going_back_row(family), flush=True)


if __name__ == "__main__":
    main()
