"""Record what every drafter would have guessed: `python -m tools.record_traces FOLDER`.

Answers of the embedded models to a few questions of each kind, cold and hot. At every place of an answer each drafter
is asked, and its tree is compared with what the answer went on with. The costs here are recorded beside them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from specchat.assemble import Engine, load_engine
from specchat.bench.builtin_prompts import QUESTIONS
from specchat.chat.prompt import extend
from specchat.chooser.costs import WIDTHS, Costs
from specchat.drafters.draft_model import DraftModel
from specchat.drafters.prompt_lookup import Lookup
from specchat.engine.decode import Plan, Writing
from specchat.engine.drafter import Context, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import ROOT, DraftTree
from specchat.profile import load_profile
from tools.replay_chooser import Shape, Trace, write_traces

SEED, BUDGET, GUESSES = 11, 16, 8
TEMPERATURES = (0.0, 0.8)


def record(engine: Engine, limit: int) -> Iterator[Trace]:
    """A trace for each question and temperature."""
    for kind, requests in QUESTIONS.items():
        for temperature in TEMPERATURES:
            for request in requests:
                prompt = extend(engine.voice.tokenizer, "", (), request).ids
                yield _record(engine, kind, prompt, Sampler(temperature, seed=SEED), limit)


def drafters(engine: Engine) -> dict[str, Drafter]:
    """Who is recorded."""
    assert engine.draft is not None
    return {"lookup": Lookup(), "draft": DraftModel(engine.draft, GUESSES)}


def _record(engine: Engine, kind: str, prompt: list[int], sampler: Sampler, limit: int) -> Trace:
    answer = _answer(engine, prompt, sampler, limit)
    guessed = dict[str, tuple[Shape, ...]]()
    for name, drafter in drafters(engine).items():
        shapes = list[Shape]()
        for place in range(len(answer)):
            tree = drafter.propose(Context(prompt + answer[:place], sampler, BUDGET))
            shapes.append(shape_of(tree, answer[place:]))
        guessed[name] = tuple(shapes)
    return Trace(kind, sampler.temperature, guessed)


def shape_of(tree: DraftTree, text: list[int]) -> Shape:
    """A tree without its tokens, and which of its nodes the text goes through."""
    path, node = list[int](), ROOT
    for token in text:
        found = tree.child(node, token)
        if found is None:
            break
        path.append(node := found)
    return Shape(tuple(tree.parents[1:]), tuple(path))


def _answer(engine: Engine, prompt: list[int], sampler: Sampler, limit: int) -> list[int]:
    target = engine.voice.target
    writing = Writing(target)
    writing.revise(list(prompt))
    with target.pool.seated(writing.cache, writing.rows_for(limit)):
        for _known in writing.read():
            pass
        for _step in writing.steps(Plan(Drafter(), sampler, 0, limit, engine.voice.tokenizer.stop)):
            pass
    writing.close()
    return writing.tokens[len(prompt) :]


def measure(engine: Engine, name: str) -> dict[str, object]:
    """The costs of this machine, as a table that `replay.read_tables` reads."""
    target, costs = engine.voice.target, Costs()
    prompt = extend(engine.voice.tokenizer, "", (), QUESTIONS["edit"][0]).ids
    writing = Writing(target)
    writing.revise(list(prompt))
    with target.pool.seated(writing.cache, writing.rows_for(1)):
        for _known in writing.read():
            pass
        costs.calibrate(writing)
    writing.close()
    rows = costs.rows(len(prompt), max(WIDTHS)) or []
    prices = {each: _price(drafter, prompt) for each, drafter in drafters(engine).items()}
    return {"name": name, "rows": {str(width): round(rows[width], 7) for width in WIDTHS}, "drafters": prices}


def _price(drafter: Drafter, prompt: list[int]) -> tuple[float, float]:
    """Seconds of asking, and for each guess: the middle of many."""
    drafter.propose(Context(prompt, Sampler(), BUDGET))
    seconds = dict[int, float]()
    for budget in (1, GUESSES):
        taken = list[float]()
        for _ in range(9):
            begun = perf_counter()
            drafter.propose(Context(prompt, Sampler(), budget))
            taken.append(perf_counter() - begun)
        seconds[budget] = median(taken)
    each = max((seconds[GUESSES] - seconds[1]) / (GUESSES - 1), 0.0)
    return round(max(seconds[1] - each, 0.0), 7), round(each, 7)


def main(arguments: list[str] | None = None) -> int:
    """Write `traces-embedded.json` and `costs-NAME.json` into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.record_traces", description="Record what every drafter would have guessed."
    )
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument("--limit", type=int, default=160, help="most tokens of an answer")
    parser.add_argument("--machine", default="cpu", help="the name of the table of costs")
    options = parser.parse_args(arguments)
    engine = load_engine(load_profile("chat"))
    options.folder.mkdir(parents=True, exist_ok=True)
    costs = options.folder / f"costs-{options.machine}.json"
    costs.write_text(json.dumps([measure(engine, options.machine)], indent=1) + "\n")
    write_traces(options.folder / "traces-embedded.json", record(engine, options.limit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
