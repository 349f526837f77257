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

from specchat.assemble import CANDIDATES, Engine
from specchat.bench.latency import Heard
from specchat.bench.sweep import Asker
from specchat.bench.sweep_cells import PLAIN, Cell, Grid
from specchat.bench.sweep_report import Measured, best_of_each, recommended
from specchat.bench.variants import depth_of
from specchat.chat.request import Request
from specchat.chooser.costs import Costs
from specchat.errors import InputError

BUDGETS = (4, 8, 16, 32)
SLACK = 0.03  # speed that fewer guesses may lack; less is noise


@dataclass(frozen=True)
class Tuned:
    """What follows from a sweep."""

    budget: int
    orders: Mapping[str, tuple[str, ...]]  # by kind, the best first; those behind plain are not worth asking


def candidates(engine: Engine) -> tuple[str, ...]:
    """Among whom `auto` chooses with these models, plain decoding left out."""
    with engine.session() as session:
        return tuple(name for name in CANDIDATES if name in session.chooser.drafters)


def tuning_grid(engine: Engine, limit: int) -> Grid:
    """What is tried: everybody whom `auto` may choose, at the temperature of the profile."""
    return Grid(candidates(engine), BUDGETS, temperatures=(engine.voice.profile.sampling.temperature,), limit=limit)


def decide(rows: Sequence[Measured]) -> Tuned:
    """The fewest guesses with which every kind is about as fast as with any number, and who is worth asking."""
    kinds = list(dict.fromkeys(row.cell.kind for row in rows))
    budgets = sorted({row.cell.budget for row in rows if row.cell.drafter != PLAIN})
    if not budgets:
        raise InputError("nobody guesses with these models, so there is nothing to tune")
    best = {(kind, budget): _fastest(rows, kind, budget) for kind in kinds for budget in budgets}
    enough = (
        budget
        for budget in budgets
        if all(best[kind, budget] >= (1 - SLACK) * max(best[kind, each] for each in budgets) for kind in kinds)
    )
    return Tuned(next(enough, budgets[-1]), {kind: _order(rows, kind) for kind in kinds})


def _fastest(rows: Sequence[Measured], kind: str, budget: int) -> float:
    """Times plain with at most so many guesses: who may guess more may also guess less, or not at all."""
    here = [row.worth for row in rows if row.cell.kind == kind and row.cell.budget <= budget]
    return max([1.0, *here])


def _order(rows: Sequence[Measured], kind: str) -> tuple[str, ...]:
    ranked = best_of_each([row for row in rows if row.cell.kind == kind])
    paying = [row.cell.drafter for row in ranked if row.pays]
    return (*paying, PLAIN, *(row.cell.drafter for row in ranked if not row.pays))


def teaching(ask: Asker, costs: Costs, names: frozenset[str]) -> Asker:
    """The same answers, of which the costs of these drafters are learnt; those of passes are learnt by the session."""

    def asked(request: Request, cell: Cell) -> Heard:
        heard = ask(request, cell)
        if cell.drafter in names:
            teach(costs, cell.drafter, heard)
        return heard

    return asked


def teach(costs: Costs, name: str, heard: Heard) -> None:
    """What the trees of an answer cost; the first is left out, for before it there was a prompt to be read."""
    length = heard.totals.prompt_tokens
    for number, step in enumerate(heard.steps):
        if number and (depth := depth_of(step)):
            costs.learn_draft(name, length, depth, step.draft_seconds)
        length += len(step.committed)
    costs.save()


def computing(engine: Engine) -> frozenset[str]:
    """The candidates who need time to guess."""
    with engine.session() as session:
        return frozenset(name for name, drafter in session.chooser.drafters.items() if not drafter.is_instant)


def as_toml(tuned: Tuned, rows: Sequence[Measured], about: str) -> str:
    """The layer, with what it follows from as comments."""
    lines = [f"# Measured by `specchat tune`: {about}", "# `specchat tune --forget` removes this file.", "#"]
    lines += [f"# {kind}: {words}" for kind, words in recommended(rows).items()]
    lines += ["", "[speculation]", f"budget = {tuned.budget}"]
    for kind, variants in tuned.orders.items():
        lines += ["", "[[orders]]", f"kind = {json.dumps(kind)}", f"variants = {json.dumps(list(variants))}"]
    return "\n".join(lines) + "\n"


def store(path: Path, text: str) -> None:
    """Write the layer, whole or not at all. InputError when the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
