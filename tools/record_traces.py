"""Record what every drafter would have proposed: `python -m tools.record_traces FOLDER`.

The embedded models answer a few questions of each kind, greedy and sampled. At every position of an answer each drafter
proposes a tree, which is compared with the rest of the answer. The costs of this machine are recorded, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
from specchat.chat.prompt import build_next_prompt
from specchat.chooser.costs import CALIBRATION_ROWS, Costs
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.engine.cache import bucket_of
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import ROOT, DraftTree
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile import load_profile
from tools.replay_chooser import RecordedTree, Trace, write_traces

SEED, MAX_DRAFT_TOKENS, DRAFT_TOKENS = 11, 16, 8
TEMPERATURES = (0.0, 0.8)


def record_answers(engine: Engine, max_tokens: int) -> Iterator[Trace]:
    """A trace for each question and temperature."""
    for kind, requests in BUILTIN_REQUESTS.items():
        for temperature in TEMPERATURES:
            for request in requests:
                prompt = build_next_prompt(engine.models.tokenizer, "", (), request).token_ids
                yield _record(engine, kind, prompt, Sampler(temperature, seed=SEED), max_tokens)


def recorded_drafters(engine: Engine) -> dict[str, Drafter]:
    """The drafters to record."""
    assert engine.draft_model is not None
    return {"lookup": PromptLookup(), "draft": DraftModelDrafter(engine.draft_model, DRAFT_TOKENS)}


def _record(engine: Engine, kind: str, prompt: list[int], sampler: Sampler, max_tokens: int) -> Trace:
    answer = _generate(engine, prompt, sampler, max_tokens)
    trees_by_drafter = dict[str, tuple[RecordedTree, ...]]()
    for name, drafter in recorded_drafters(engine).items():
        shapes = list[RecordedTree]()
        for position in range(len(answer)):
            tree = drafter.propose(DraftContext(prompt + answer[:position], sampler, MAX_DRAFT_TOKENS))
            shapes.append(recorded_tree(tree, answer[position:]))
        trees_by_drafter[name] = tuple(shapes)
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


def _generate(engine: Engine, prompt: list[int], sampler: Sampler, max_tokens: int) -> list[int]:
    target = engine.models.target
    generation = Generation(target)
    generation.replace_tokens(list(prompt))
    with target.pool.acquire_slot(generation.cache, generation.rows_needed(max_tokens)):
        for _progress in generation.prefill():
            pass
        for _step in generation.decode(
            GenerationConfig(Drafter(), sampler, 0, max_tokens, engine.models.tokenizer.stop_token_ids)
        ):
            pass
    generation.close()
    return generation.tokens[len(prompt) :]


def measure_costs(engine: Engine, name: str) -> dict[str, object]:
    """The costs of this machine, as a table that `replay_chooser.read_tables` reads."""
    target, costs = engine.models.target, Costs()
    prompt = build_next_prompt(engine.models.tokenizer, "", (), BUILTIN_REQUESTS["edit"][0]).token_ids
    generation = Generation(target)
    generation.replace_tokens(list(prompt))
    with target.pool.acquire_slot(generation.cache, generation.rows_needed(1)):
        for _progress in generation.prefill():
            pass
        costs.calibrate(generation)
    generation.close()
    rows = costs.pass_curves[bucket_of(len(prompt))].seconds_up_to(max(CALIBRATION_ROWS)) or []
    draft_costs = {each: _draft_cost(drafter, prompt) for each, drafter in recorded_drafters(engine).items()}
    return {
        "name": name,
        "rows": {str(width): round(rows[width], 7) for width in CALIBRATION_ROWS},
        "drafters": draft_costs,
    }


def _draft_cost(drafter: Drafter, prompt: list[int]) -> tuple[float, float]:
    """Median seconds of a proposal, and of each further draft token."""
    drafter.propose(DraftContext(prompt, Sampler(), MAX_DRAFT_TOKENS))
    seconds = dict[int, float]()
    for budget in (1, DRAFT_TOKENS):
        measured = list[float]()
        for _ in range(9):
            started_at = perf_counter()
            drafter.propose(DraftContext(prompt, Sampler(), budget))
            measured.append(perf_counter() - started_at)
        seconds[budget] = median(measured)
    each = max((seconds[DRAFT_TOKENS] - seconds[1]) / (DRAFT_TOKENS - 1), 0.0)
    return round(max(seconds[1] - each, 0.0), 7), round(each, 7)


def main(arguments: list[str] | None = None) -> int:
    """Write `traces-embedded.json` and `costs-NAME.json` into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.record_traces", description="Record what every drafter would have proposed."
    )
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--limit", type=int, default=160, help="most tokens of an answer")
    parser.add_argument("--machine", default="cpu", help="the name of the table of costs")
    options = parser.parse_args(arguments)
    engine = load_engine(load_profile("chat", {"models.target": "embedded"}))
    options.folder.mkdir(parents=True, exist_ok=True)
    costs = options.folder / f"costs-{options.machine}.json"
    costs.write_text(json.dumps([measure_costs(engine, options.machine)], indent=1) + "\n")
    write_traces(options.folder / "traces-embedded.json", record_answers(engine, options.limit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
