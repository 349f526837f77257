"""Values for this machine from a short bench: the budget, the order of drafters by kind of request, and the costs.

Budget and order become a layer below the user file (`profile/tuned_values.py`); the costs are stored where the engine
stores them. They are only starting values: `auto` keeps measuring, so that a wrong order or a draft model that became
twice as slow stays within 2 % of plain decoding (tests/cli/test_tune.py replays that).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.bench.columns import CombinationResult, best_by_drafter, recommendations
from specchat.bench.combinations import PLAIN, Combination, Grid
from specchat.bench.latency import TimedAnswer
from specchat.bench.measure import MeasureRequest, draft_tree_depth
from specchat.chat.request import Request
from specchat.chooser.costs import Costs
from specchat.errors import InputError
from specchat.loading.load_engine import Engine
from specchat.paths import write_atomically
from specchat.profile import DRAFTERS

BUDGETS = (4, 8, 16, 32)
SPEED_TOLERANCE = 0.03  # speed that a smaller budget may cost; less is noise


@dataclass(frozen=True)
class TuningResult:
    budget: int
    drafter_order_by_kind: Mapping[str, tuple[str, ...]]  # fastest first; drafters after `plain` are slower than plain


def tuning_candidates(engine: Engine) -> tuple[str, ...]:
    """The candidates of `auto` with these models, without plain decoding."""
    with engine.create_session() as session:
        return tuple(name for name in session.chooser.drafters if name in DRAFTERS)


def tuning_grid(engine: Engine, max_tokens: int) -> Grid:
    """Every candidate of `auto`, at the temperature of the profile."""
    return Grid(
        tuning_candidates(engine),
        BUDGETS,
        temperatures=(engine.models.profile.sampling.temperature,),
        max_tokens=max_tokens,
    )


def choose_values(rows: Sequence[CombinationResult]) -> TuningResult:
    """The smallest budget with which every kind is about as fast as with any, and the order of drafters."""
    kinds = list(dict.fromkeys(row.combination.kind for row in rows))
    budgets = sorted({row.combination.budget for row in rows if row.combination.drafter != PLAIN})
    if not budgets:
        raise InputError("these models have no drafter, so there is nothing to tune")
    best = {(kind, budget): _best_speedup(rows, kind, budget) for kind in kinds for budget in budgets}
    enough = (
        budget
        for budget in budgets
        if all(
            best[kind, budget] >= (1 - SPEED_TOLERANCE) * max(best[kind, each] for each in budgets) for kind in kinds
        )
    )
    return TuningResult(next(enough, budgets[-1]), {kind: _drafter_order(rows, kind) for kind in kinds})


def _best_speedup(rows: Sequence[CombinationResult], kind: str, budget: int) -> float:
    """The best speedup within a budget: a larger budget allows fewer draft tokens, and none, too."""
    here = [
        row.conservative_speedup for row in rows if row.combination.kind == kind and row.combination.budget <= budget
    ]
    return max([1.0, *here])


def _drafter_order(rows: Sequence[CombinationResult], kind: str) -> tuple[str, ...]:
    ranked = best_by_drafter([row for row in rows if row.combination.kind == kind])
    useful = [row.combination.drafter for row in ranked if row.is_useful]
    return (*useful, PLAIN, *(row.combination.drafter for row in ranked if not row.is_useful))


def recording_draft_costs(measure: MeasureRequest, costs: Costs, names: frozenset[str]) -> MeasureRequest:
    """Measure, and learn the costs of these drafters; the session learns those of passes."""

    def measure_and_learn(request: Request, combination: Combination) -> TimedAnswer:
        answer = measure(request, combination)
        if combination.drafter in names:
            record_draft_costs(costs, combination.drafter, answer)
        return answer

    return measure_and_learn


def record_draft_costs(costs: Costs, name: str, answer: TimedAnswer) -> None:
    """Learn what the draft trees of an answer cost, without the first one, which includes the prefill."""
    length = answer.totals.prompt_tokens
    for number, step in enumerate(answer.steps):
        if number and (depth := draft_tree_depth(step)):
            costs.learn_draft(name, length, depth, step.draft_seconds)
        length += len(step.committed_tokens)
    costs.save()


def drafters_with_cost(engine: Engine) -> frozenset[str]:
    """Candidates that compute, and so have a cost."""
    with engine.create_session() as session:
        return frozenset(name for name, drafter in session.chooser.drafters.items() if not drafter.is_instant)


def as_toml(tuned: TuningResult, rows: Sequence[CombinationResult], about: str) -> str:
    """The tuned layer as TOML, with the measurements as comments."""
    lines = [f"# Measured by `specchat tune`: {about}", "# `specchat tune --forget` removes this file.", "#"]
    lines += [f"# {kind}: {sentence}" for kind, sentence in recommendations(rows).items()]
    lines += ["", "[speculation]", f"budget = {tuned.budget}"]
    for kind, variants in tuned.drafter_order_by_kind.items():
        lines += ["", "[[drafter_orders]]", f"kind = {json.dumps(kind)}", f"variants = {json.dumps(list(variants))}"]
    return "\n".join(lines) + "\n"


def write_tuned_file(path: Path, text: str) -> None:
    """InputError when the file cannot be written."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
