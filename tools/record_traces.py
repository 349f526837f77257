"""Record what each drafter would have proposed: `python -m tools.record_traces FOLDER`.

The target answers a few questions of each kind by plain decoding, greedy and sampled. At every position of an answer
each drafter proposes a tree, which is compared with the rest of the answer. The costs of this machine are recorded, as
processor time: with OMP_NUM_THREADS=1 other load does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from time import process_time

from specchat.chat.prompt import build_next_prompt
from specchat.drafters.registry import build_drafter
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import ROOT, DraftTree
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.profile_files import load_profile
from specchat_bench.builtin_prompts import BUILTIN_REQUESTS
from tools.replay_chooser import RecordedTree, Trace, write_traces

SEED, MAX_DRAFT_TOKENS, DRAFT_TOKENS = 11, 16, 4
MEASURED_ROWS, TIMED_PASSES = (1, 2, 4, 8, 16), 9
TIMED_TOKENS = 60  # of the answer with which drafters are timed
TEMPERATURES = (0.0, 0.8)
DRAFTERS = ("suffix", "eagle3")


class DraftRecorder(Drafter):
    """Plain decoding that keeps the tree of every drafter at every position."""

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self.drafters = drafters
        self.trees = {name: list[DraftTree]() for name in drafters}

    def propose(self, context: DraftContext) -> DraftTree:
        full = DraftContext(context.tokens, context.sampler, MAX_DRAFT_TOKENS, context.seen_tokens, context.cache)
        for name, drafter in self.drafters.items():
            self.trees[name].append(drafter.propose(full))
        return super().propose(context)


def record_answers(engine: Engine, max_tokens: int) -> Iterator[Trace]:
    """A trace for each question and temperature."""
    for kind, requests in BUILTIN_REQUESTS.items():
        for temperature in TEMPERATURES:
            for request in requests:
                prompt = build_next_prompt(engine.models.tokenizer, "", (), request).token_ids
                yield _record(engine, kind, prompt, Sampler(temperature, seed=SEED), max_tokens)


def recorded_drafters(engine: Engine) -> dict[str, Drafter]:
    """New drafters of one text."""
    built = {name: build_drafter(name, engine.resources) for name in DRAFTERS}
    return {name: drafter for name, drafter in built.items() if drafter is not None}


def _record(engine: Engine, kind: str, prompt: list[int], sampler: Sampler, max_tokens: int) -> Trace:
    recorder = DraftRecorder(recorded_drafters(engine))
    generation = Generation(engine.models.target, tuple(recorder.drafters.values()))
    generation.replace_tokens(list(prompt))
    stop_token_ids = engine.models.tokenizer.stop_token_ids
    # one token more: where one is left, the loop asks no drafter
    generation.generate(GenerationConfig(recorder, sampler, MAX_DRAFT_TOKENS, max_tokens + 1, stop_token_ids))
    answer = generation.tokens[len(prompt) :]
    generation.close()
    trees_by_drafter = {
        name: tuple(recorded_tree(tree, answer[position:]) for position, tree in enumerate(trees))
        for name, trees in recorder.trees.items()
    }
    return Trace(kind, sampler.temperature, trees_by_drafter)


def recorded_tree(tree: DraftTree, following_tokens: list[int]) -> RecordedTree:
    """A tree without its tokens, and the path that the text takes through it."""
    path, node = list[int](), ROOT
    for token in following_tokens:
        child = tree.child(node, token)
        if child is None:
            break
        path.append(node := child)
    return RecordedTree(tuple(tree.parents[1:]), tuple(path))


def measure_costs(engine: Engine, name: str) -> dict[str, object]:
    """The costs of this machine, as a table that `read_cost_tables` reads, in processor time."""
    prompt = build_next_prompt(engine.models.tokenizer, "", (), BUILTIN_REQUESTS["edit"][0]).token_ids
    generation = Generation(engine.models.target)
    generation.replace_tokens(list(prompt))
    with engine.models.target.pool.acquire_slot(generation.cache, generation.rows_needed(max(MEASURED_ROWS))):
        for _progress in generation.prefill():
            pass
        rows = {str(width): round(_pass_seconds(generation, width), 7) for width in MEASURED_ROWS}
    generation.close()
    drafters = recorded_drafters(engine).items()
    return {"name": name, "rows": rows, "drafters": {each: _draft_cost(engine, it, prompt) for each, it in drafters}}


def _pass_seconds(generation: Generation, row_count: int) -> float:
    """Median processor seconds of a pass over so many rows."""
    seconds = list[float]()
    for _ in range(TIMED_PASSES):
        started_at = process_time()
        generation.measure_pass(row_count, Sampler())
        seconds.append(process_time() - started_at)
    return median(seconds)


class DraftTimer(Drafter):
    """Plain decoding that times a proposal of every other size at each position."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.seconds_by_size: dict[int, list[tuple[int, float]]] = {1: [], DRAFT_TOKENS: []}  # with the depth

    def propose(self, context: DraftContext) -> DraftTree:
        size = 1 if len(context.tokens) % 2 else DRAFT_TOKENS
        started_at = process_time()
        tree = self.drafter.propose(replace(context, max_draft_tokens=size))
        self.seconds_by_size[size].append((max(tree.depths), process_time() - started_at))
        return super().propose(context)


def _draft_cost(engine: Engine, drafter: Drafter, prompt: list[int]) -> tuple[float, float]:
    """Median seconds of a proposal, and of each level of its tree."""
    timer = DraftTimer(drafter)
    generation = Generation(engine.models.target, (drafter,))
    generation.replace_tokens(list(prompt))
    generation.generate(GenerationConfig(timer, Sampler(), MAX_DRAFT_TOKENS, TIMED_TOKENS))
    generation.close()
    (_, shallow), (depth, deep) = (
        (fmean(levels for levels, _seconds in timed), median(seconds for _levels, seconds in timed))
        for timed in timer.seconds_by_size.values()
    )
    each = max(deep - shallow, 0.0) / max(depth - 1, 1.0)
    return round(max(shallow - each, 0.0), 7), round(each, 7)


def main(arguments: list[str] | None = None) -> int:
    """Write `traces-TARGET.json` and `costs-NAME.json` into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.record_traces", description="Record what every drafter would have proposed."
    )
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--limit", type=int, default=160, help="most tokens of an answer")
    parser.add_argument("--machine", default="cpu", help="the name of the table of costs")
    parser.add_argument("--target", default="starter")
    options = parser.parse_args(arguments)
    engine = load_engine(load_profile("chat", {"models.target": options.target}))
    options.folder.mkdir(parents=True, exist_ok=True)
    costs = options.folder / f"costs-{options.machine}.json"
    costs.write_text(json.dumps([measure_costs(engine, options.machine)], indent=1) + "\n")
    write_traces(options.folder / f"traces-{options.target}.json", record_answers(engine, options.limit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
