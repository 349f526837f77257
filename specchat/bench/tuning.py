"""A short sweep with the models of a profile, and what follows from it for this machine: who is to be asked first on
each kind of request, how many guesses a pass may have, and what passes and drafters cost.

The first two become a layer beneath the user's file (`profile/tuned_values.py`), the costs are kept where the engine keeps
them. All three are where the choice begins, never where it ends: `auto` goes on measuring, so that a wrong order, or a
draft that has become twice as slow, stays within 2 % of plain decoding (tests/cli/test_tune.py replays that).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.assemble import AUTO_CANDIDATES, Engine
from specchat.bench.latency import TimedAnswer
from specchat.bench.sweep import MeasureRequest
from specchat.bench.sweep_cells import PLAIN, Combination, Grid
from specchat.bench.sweep_report import CombinationResult, best_by_drafter, recommendations
from specchat.bench.variants import draft_tree_depth
from specchat.chat.request import Request
from specchat.chooser.costs import Costs
from specchat.errors import InputError

BUDGETS = (4, 8, 16, 32)
SPEED_TOLERANCE = 0.03  # speed that fewer guesses may lack; less is noise


@dataclass(frozen=True)
class TuningResult:
    """What follows from a sweep."""

    budget: int
    drafter_order_by_kind: Mapping[
        str, tuple[str, ...]
    ]  # by kind, the best first; those behind plain are not worth asking


def tuning_candidates(engine: Engine) -> tuple[str, ...]:
    """Among whom `auto` chooses with these models, plain decoding left out."""
    with engine.create_session() as session:
        return tuple(name for name in AUTO_CANDIDATES if name in session.chooser.drafters)


def tuning_grid(engine: Engine, limit: int) -> Grid:
    """What is tried: everybody whom `auto` may choose, at the temperature of the profile."""
    return Grid(
        tuning_candidates(engine), BUDGETS, temperatures=(engine.models.profile.sampling.temperature,), max_tokens=limit
    )


def choose_values(rows: Sequence[CombinationResult]) -> TuningResult:
    """The fewest guesses with which every kind is about as fast as with any number, and who is worth asking."""
    kinds = list(dict.fromkeys(row.combination.kind for row in rows))
    budgets = sorted({row.combination.budget for row in rows if row.combination.drafter != PLAIN})
    if not budgets:
        raise InputError("nobody guesses with these models, so there is nothing to tune")
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
    """Times plain with at most so many guesses: who may guess more may also guess less, or not at all."""
    here = [
        row.conservative_speedup for row in rows if row.combination.kind == kind and row.combination.budget <= budget
    ]
    return max([1.0, *here])


def _drafter_order(rows: Sequence[CombinationResult], kind: str) -> tuple[str, ...]:
    ranked = best_by_drafter([row for row in rows if row.combination.kind == kind])
    paying = [row.combination.drafter for row in ranked if row.is_useful]
    return (*paying, PLAIN, *(row.combination.drafter for row in ranked if not row.is_useful))


def recording_draft_costs(ask: MeasureRequest, costs: Costs, names: frozenset[str]) -> MeasureRequest:
    """The same answers, of which the costs of these drafters are learnt; those of passes are learnt by the session."""

    def asked(request: Request, cell: Combination) -> TimedAnswer:
        heard = ask(request, cell)
        if cell.drafter in names:
            record_draft_costs(costs, cell.drafter, heard)
        return heard

    return asked


def record_draft_costs(costs: Costs, name: str, answer: TimedAnswer) -> None:
    """What the trees of an answer cost; the first is left out, for before it there was a prompt to be read."""
    length = answer.totals.prompt_tokens
    for number, step in enumerate(answer.steps):
        if number and (depth := draft_tree_depth(step)):
            costs.learn_draft(name, length, depth, step.draft_seconds)
        length += len(step.committed_tokens)
    costs.save()


def drafters_with_cost(engine: Engine) -> frozenset[str]:
    """The candidates who need time to guess."""
    with engine.create_session() as session:
        return frozenset(name for name, drafter in session.chooser.drafters.items() if not drafter.is_instant)


def as_toml(tuned: TuningResult, rows: Sequence[CombinationResult], about: str) -> str:
    """The layer, with what it follows from as comments."""
    lines = [f"# Measured by `specchat tune`: {about}", "# `specchat tune --forget` removes this file.", "#"]
    lines += [f"# {kind}: {words}" for kind, words in recommendations(rows).items()]
    lines += ["", "[speculation]", f"budget = {tuned.budget}"]
    for kind, variants in tuned.drafter_order_by_kind.items():
        lines += ["", "[[orders]]", f"kind = {json.dumps(kind)}", f"variants = {json.dumps(list(variants))}"]
    return "\n".join(lines) + "\n"


def write_tuned_file(path: Path, text: str) -> None:
    """Write the layer, whole or not at all. InputError when the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
